import t from 'tap';
import {
  changingJob,
  isDrainedAt,
  isPausedAt,
  OPEN,
  type Pause,
  type PauseEvent,
  pauseAfter,
  stepPause,
} from '../../../lib/agent/pause/pause.ts';

const NOW = 1_000;
const until = (endsAt: number, jobId = 'a', isChanging = false) => ({ jobId, durationMs: 100, endsAt, isChanging });
const paused: Pause = { byOperator: true, drain: undefined };
const draining: Pause = { byOperator: false, drain: until(NOW + 50) };
const both: Pause = { byOperator: true, drain: until(NOW + 50) };
const changing: Pause = { byOperator: false, drain: until(NOW + 50, 'a', true) };
const lapsed: Pause = { byOperator: false, drain: until(NOW, 'a', true) };
const over: Pause = { byOperator: false, drain: until(NOW) };
const begin = (jobId: string): PauseEvent => ({ type: 'begin-drain', jobId, durationMs: 100 });
const change = (jobId: string): PauseEvent => ({ type: 'begin-change', jobId });
const fail = (jobId: string): PauseEvent => ({ type: 'change-failed', jobId });
const end = (jobId: string): PauseEvent => ({ type: 'end-drain', jobId });

const rows: { name: string; from: Pause; event: PauseEvent; to: Pause }[] = [
  { name: 'an operator pauses', from: OPEN, event: { type: 'pause' }, to: paused },
  { name: 'an operator pauses a server that drains', from: draining, event: { type: 'pause' }, to: both },
  { name: 'a drain begins', from: OPEN, event: begin('a'), to: { ...OPEN, drain: until(NOW + 100) } },
  { name: 'a drain begins again', from: draining, event: begin('a'), to: { ...OPEN, drain: until(NOW + 100) } },
  { name: 'another job drains', from: draining, event: begin('b'), to: { ...OPEN, drain: until(NOW + 100, 'b') } },
  { name: 'a drain of a paused agent', from: paused, event: begin('a'), to: { ...paused, drain: until(NOW + 100) } },
  { name: 'a change begins', from: draining, event: change('a'), to: { ...OPEN, drain: until(NOW + 100, 'a', true) } },
  {
    name: 'a change begins again',
    from: changing,
    event: change('a'),
    to: { ...OPEN, drain: until(NOW + 100, 'a', true) },
  },
  { name: 'no change begins when its drain is over', from: over, event: change('a'), to: over },
  { name: 'no change of another job begins', from: draining, event: change('b'), to: draining },
  { name: 'no change begins without a drain', from: paused, event: change('a'), to: paused },
  { name: 'a change fails', from: changing, event: fail('a'), to: draining },
  { name: 'a change fails that has not begun', from: draining, event: fail('a'), to: draining },
  { name: 'a change of another job fails', from: changing, event: fail('b'), to: changing },
  { name: 'an operator cannot resume a server that changes', from: changing, event: { type: 'resume' }, to: changing },
  {
    name: 'an operator resumes when the time of the change is over',
    from: lapsed,
    event: { type: 'resume' },
    to: OPEN,
  },
  { name: 'the job of a change ends its drain', from: changing, event: end('a'), to: OPEN },
  { name: 'a drain ends', from: draining, event: end('a'), to: OPEN },
  { name: 'another job does not end a drain', from: draining, event: end('b'), to: draining },
  { name: 'a drain ends, and the pause of the operator stays', from: both, event: end('a'), to: paused },
  { name: 'a drain ends twice', from: OPEN, event: end('a'), to: OPEN },
  { name: 'an operator resumes', from: paused, event: { type: 'resume' }, to: OPEN },
  { name: 'an operator resumes a server that drains', from: both, event: { type: 'resume' }, to: OPEN },
];
for (const { name, from, event, to } of rows)
  t.test(name, async (t) => {
    t.same(stepPause(from, event, NOW), to);
  });

t.test('a drain ends by itself, and the pause of an operator does not', async (t) => {
  const all = [OPEN, paused, draining, both];
  t.same(
    all.map((pause) => isPausedAt(pause, NOW + 49)),
    [false, true, true, true],
  );
  t.same(
    all.map((pause) => isPausedAt(pause, NOW + 50)),
    [false, true, false, true],
  );
  t.same(
    all.map((pause) => isDrainedAt(pause, 'a', NOW + 49)),
    [false, false, true, true],
  );
  t.notOk(isDrainedAt(both, 'b', NOW));
  t.notOk(isDrainedAt(both, 'a', NOW + 50));
});

t.test('the job of a change is known until its time is over', async (t) => {
  t.same(
    [OPEN, both, changing, lapsed].map((pause) => changingJob(pause, NOW)),
    [undefined, undefined, 'a', undefined],
  );
});

const kept = { jobId: 'a', durationMs: 100, endsAtWallTime: 5_100, bootId: 'b' };
for (const [name, bootId, wallTime, left] of [
  ['as much as is left', 'b', 5_030, 70],
  ['nothing of one that is over', 'b', 5_200, 0],
  ['no more than it had, when the clock was set back', 'b', 1_000, 100],
  ['nothing after a boot', 'c', 5_030, 0],
] as const)
  t.test(`the next process continues a drain: ${name}`, async (t) => {
    const after = pauseAfter(kept, { bootId, wallTime, now: NOW });
    t.same(after, left === 0 ? OPEN : { ...OPEN, drain: until(NOW + left) });
  });
