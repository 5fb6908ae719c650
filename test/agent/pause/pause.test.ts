import t from 'tap';
import { isPausedAt, leftOf, OPEN, type Pause, type PauseEvent, stepPause } from '../../../lib/agent/pause/pause.ts';

const NOW = 1_000;
const paused: Pause = { byOperator: true, leaseEndsAt: undefined };
const leased: Pause = { byOperator: false, leaseEndsAt: NOW + 50 };
const both: Pause = { byOperator: true, leaseEndsAt: NOW + 50 };
const lease: PauseEvent = { type: 'lease', durationMs: 100 };

const rows: { name: string; from: Pause; event: PauseEvent; to: Pause }[] = [
  { name: 'an operator pauses', from: OPEN, event: { type: 'pause' }, to: paused },
  { name: 'an operator pauses a server that drains', from: leased, event: { type: 'pause' }, to: both },
  { name: 'a drain begins', from: OPEN, event: lease, to: { ...OPEN, leaseEndsAt: NOW + 100 } },
  { name: 'a drain begins again', from: leased, event: lease, to: { ...leased, leaseEndsAt: NOW + 100 } },
  { name: 'a drain of a paused agent', from: paused, event: lease, to: { ...paused, leaseEndsAt: NOW + 100 } },
  { name: 'a drain ends', from: leased, event: { type: 'end-lease' }, to: OPEN },
  { name: 'a drain ends, and the pause of the operator stays', from: both, event: { type: 'end-lease' }, to: paused },
  { name: 'a drain ends twice', from: OPEN, event: { type: 'end-lease' }, to: OPEN },
  { name: 'an operator resumes', from: paused, event: { type: 'resume' }, to: OPEN },
  { name: 'an operator resumes a server that drains', from: both, event: { type: 'resume' }, to: OPEN },
];
for (const { name, from, event, to } of rows)
  t.test(name, async (t) => {
    t.same(stepPause(from, event, NOW), to);
  });

t.test('a lease ends by itself, and the pause of an operator does not', async (t) => {
  t.same(
    [OPEN, paused, leased, both].map((pause) => isPausedAt(pause, NOW + 49)),
    [false, true, true, true],
  );
  t.same(
    [OPEN, paused, leased, both].map((pause) => isPausedAt(pause, NOW + 50)),
    [false, true, false, true],
  );
});

const kept = { durationMs: 100, endsAtWallTime: 5_100, bootId: 'b' };
for (const [name, bootId, wallTime, left] of [
  ['as much as is left', 'b', 5_030, 70],
  ['nothing of one that is over', 'b', 5_200, 0],
  ['no more than it had, when the clock was set back', 'b', 1_000, 100],
  ['nothing after a boot', 'c', 5_030, 0],
] as const)
  t.test(`the next process continues a lease: ${name}`, async (t) => {
    t.equal(leftOf(kept, { bootId, wallTime }), left);
  });
