/** The distance to the database, as beats show it. */
import t from 'tap';
import { pacedReason } from '../../../../lib/control/roster/accept/admission.ts';
import { RoundTrip } from '../../../../lib/control/roster/membership/round-trip.ts';

t.test('slow answers do not make the database seem far away', async (t) => {
  const roundTrip = new RoundTrip(0);
  t.equal(roundTrip.shortestMs, 0, 'unknown before the first answer');
  for (let second = 1; second <= 300; second++) roundTrip.note(second === 200 ? 2 : 900, second * 1_000);
  t.equal(roundTrip.shortestMs, 2);
});

t.test('a database that has moved away is known to be far after some minutes', async (t) => {
  const roundTrip = new RoundTrip(0);
  roundTrip.note(2, 0);
  for (let second = 1; second <= 320; second++) roundTrip.note(300, second * 1_000);
  t.equal(roundTrip.shortestMs, 300);
});

t.test('an instance says how far away its database is if that limits it', async (t) => {
  t.equal(pacedReason(2), 'too many agents are connecting');
  t.equal(pacedReason(301.4), 'too many agents are connecting; its database is 301 ms away');
});
