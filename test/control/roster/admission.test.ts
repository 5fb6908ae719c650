/** How many agents an instance lets in, by what it measures of itself, and when the others are told to return. */
import t from 'tap';
import {
  type AdmissionState,
  admissionOf,
  admit,
  beginAdmission,
  defer,
  FIRST_RATE,
  loadOf,
  MAX_RATE,
  MAX_RETRY_MS,
  MAX_UNDER_WAY,
  MIN_RATE,
  mayAdmit,
  measure,
  type Pressure,
} from '../../../lib/control/roster/admission.ts';

const IDLE: Pressure = { loopLateMs: 0, busyShare: 0.2, statementMs: 0, sessions: 1_000, quiet: 0, backedUp: 0 };
const BUSY = { busyShare: 1 };
const LATE = { loopLateMs: 1_200 };

const table: { name: string; pressure: Partial<Pressure>; load: string }[] = [
  { name: 'an idle instance is on time', pressure: {}, load: 'on-time' },
  { name: 'one whose loop has nearly no rest is busy', pressure: { busyShare: 0.95 }, load: 'busy' },
  { name: 'one whose tick is a little late is busy', pressure: { loopLateMs: 150 }, load: 'busy' },
  { name: 'one whose tick is half a second late is late', pressure: { loopLateMs: 500 }, load: 'late' },
  { name: 'one whose statements take half a second is busy', pressure: { statementMs: 500 }, load: 'busy' },
  { name: 'one whose statements take two seconds is late', pressure: { statementMs: 2_000 }, load: 'late' },
  { name: 'a few silent agents are their own trouble', pressure: { quiet: 50 }, load: 'on-time' },
  { name: 'of a small instance ten silent agents are, too', pressure: { sessions: 20, quiet: 10 }, load: 'on-time' },
  { name: 'many silent agents at once make it late', pressure: { quiet: 51 }, load: 'late' },
  { name: 'many connections that take nothing make it late', pressure: { backedUp: 51 }, load: 'late' },
];
for (const { name, pressure, load } of table) t.equal(loadOf({ ...IDLE, ...pressure }).load, load, name);

/** As after so many periods of 250 ms of this pressure. */
function measured(state: AdmissionState, pressure: Partial<Pressure>, periods: number): AdmissionState {
  let after = state;
  for (let each = 0; each < periods; each++) after = measure(after, { ...IDLE, ...pressure }, after.measuredAt + 250);
  return after;
}

/** How many of `offered` come in at this moment. */
function come(state: AdmissionState, offered: number, now = state.measuredAt) {
  let after = state;
  let admitted = 0;
  while (admitted < offered && mayAdmit(after, 0, now)) {
    after = admit(after, now);
    admitted += 1;
  }
  return { state: after, admitted };
}

t.test('the rate follows the load', async (t) => {
  const begun = beginAdmission(0);
  t.equal(begun.rate, FIRST_RATE);
  t.equal(measured(begun, BUSY, 4).rate, FIRST_RATE / 2, 'busy for a second, it is halved');
  t.equal(measured(begun, BUSY, 12).rate, FIRST_RATE / 8, 'busy for three seconds, three times');
  t.equal(measured(begun, BUSY, 1_000).rate, MIN_RATE, 'not below the least');
  t.equal(measured(begun, {}, 1_000).rate, MAX_RATE, 'on time, it grows to the most');
  const recovered = measured(measured(begun, BUSY, 1_000), {}, 60);
  t.ok(recovered.rate >= FIRST_RATE, 'a quarter of a minute on time, and it is back');
});

t.test('so many come in as the rate says', async (t) => {
  const slow = measured(beginAdmission(0), BUSY, 1_000);
  const first = come(measured(slow, BUSY, 8), 1_000);
  t.ok(first.admitted <= 20, 'no more at once than a small burst');
  let state = first.state;
  let admitted = 0;
  for (let each = 0; each < 40; each++) {
    const next = come(measured(state, BUSY, 1), 1_000);
    state = next.state;
    admitted += next.admitted;
  }
  t.ok(Math.abs(admitted - 10 * MIN_RATE) <= 1, `in ten seconds ${admitted}`);
});

t.test('nobody comes in', async (t) => {
  const state = beginAdmission(0);
  t.ok(mayAdmit(state, 0, 10), 'but to one that is on time');
  t.ok(mayAdmit(measured(state, LATE, 1), 0, 250), 'one that has just become late takes one');
  t.notOk(mayAdmit(measured(state, LATE, 1), 1, 250), 'and no second one meanwhile');
  t.notOk(mayAdmit(measured(state, LATE, 50), 0, 12_500), 'nobody, once it has been late for long');
  t.ok(mayAdmit(measured(state, { loopLateMs: 900 }, 1), 0, 250), 'after one short stall it is not');
  t.ok(mayAdmit(measured(measured(state, LATE, 50), {}, 4), 5, 13_510), 'until it is on time again');
  t.notOk(mayAdmit(state, MAX_UNDER_WAY, 10), 'while as many are under way as may be');
  t.notOk(mayAdmit(state, 1, 1_500), 'before it has measured how long it stood still');
});

t.test('whoever is turned away is told a time of its own', async (t) => {
  const times: number[] = [];
  let state = measured(beginAdmission(0), BUSY, 8);
  const { rate } = state;
  for (let each = 0; each < 2 * rate; each++) {
    const deferred = defer(state, true, 2_000);
    state = deferred.state;
    times.push(deferred.retryAfterMs);
  }
  t.ok(times.every((ms) => ms >= 1_000 && ms <= MAX_RETRY_MS));
  t.same(
    times,
    [...times].sort((one, other) => one - other),
    'each no earlier than the one before',
  );
  t.ok(Math.max(...times) <= 1_010, 'twice as many in a second as may come in: some go elsewhere');
  for (let each = 0; each < 200 * rate; each++) state = defer(state, true, 2_000).state;
  t.equal(defer(state, true, 2_000).retryAfterMs, MAX_RETRY_MS, 'and nobody later than our agents wait');
  const full = beginAdmission(0);
  let last = defer(full, false, 0);
  for (let each = 1; each < 1_000; each++) last = defer(last.state, false, 0);
  t.equal(last.retryAfterMs, 10_000, 'without room, a hundred a second');
});

t.test('what others are told', async (t) => {
  const state = beginAdmission(0);
  t.equal(admissionOf(state, true, 0), 'open');
  t.equal(admissionOf(defer(state, true, 0).state, true, 9_999), 'paced', 'some were told to return');
  t.equal(admissionOf(defer(state, true, 0).state, true, 10_000), 'open', 'a while ago');
  t.equal(admissionOf(state, false, 0), 'closed', 'it has no room');
  t.equal(admissionOf(measured(state, LATE, 1), true, 250), 'closed', 'it is late');
});
