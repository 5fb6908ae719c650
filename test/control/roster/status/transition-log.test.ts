/** How many lines the changes of servers' status take in the log. */
import t from 'tap';
import { TransitionLog } from '../../../../lib/control/roster/status/transition-log.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

function setUp() {
  const clock = new ManualClock();
  const logged: Record<string, unknown>[] = [];
  const log = new TransitionLog({ clock, log: recordingLogger(logged) });
  /** Writes changes; returns how many had a line of their own, and the line about the rest. */
  const write = (...reasons: (string | undefined)[]) => {
    logged.length = 0;
    log.write(
      reasons.map((reason, n) => ({ server_uuid: `server ${n}`, reason })),
      'changed',
    );
    const own = logged.filter(({ server_uuid }) => server_uuid !== undefined);
    const [rest] = logged.filter(({ servers }) => servers !== undefined);
    return { own: own.length, rest: rest && { servers: rest.servers, reasons: rest.reasons }, lines: logged.length };
  };
  return { clock, logged, write };
}

const many = (count: number, reason: string | undefined) => Array.from({ length: count }, () => reason);

t.test('each change has a line while there are few', async (t) => {
  const { clock, logged, write } = setUp();
  t.same(write('silent', 'closed'), { own: 2, rest: undefined, lines: 2 });
  t.same(logged, [
    { level: 'info', server_uuid: 'server 0', reason: 'silent', msg: 'changed' },
    { level: 'info', server_uuid: 'server 1', reason: 'closed', msg: 'changed' },
  ]);
  for (let second = 0; second < 60; second += 1) {
    t.equal(write(...many(20, 'silent')).own, 20, 'twenty in each second, for ever');
    await clock.advance(1_000);
  }
  t.same(write(), { own: 0, rest: undefined, lines: 0 });
});

t.test('of many changes at once two hundred have a line, and the rest is counted by reason', async (t) => {
  const { write } = setUp();
  t.same(write(...many(199, 'silent'), 'closed', 'closed', 'silent', undefined), {
    own: 200,
    rest: { servers: 3, reasons: { closed: 1, silent: 1, unknown: 1 } },
    lines: 201,
  });
  t.same(write('silent'), { own: 0, rest: { servers: 1, reasons: { silent: 1 } }, lines: 1 });
});

t.test('lines come back with time, two hundred at most', async (t) => {
  const { clock, write } = setUp();
  write(...many(300, 'silent'));
  await clock.advance(500);
  t.equal(write(...many(300, 'silent')).own, 10);
  await clock.advance(40);
  t.equal(write('silent').own, 0, 'not a whole line yet');
  await clock.advance(10);
  t.equal(write('silent').own, 1);
  await clock.advance(3_600_000);
  t.equal(write(...many(300, 'silent')).own, 200);
});
