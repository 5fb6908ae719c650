import t from 'tap';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { Loop } from '../../../lib/platform/time/loop.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { recordingLogger } from '../../support/recording-logger.ts';

type LoopDeps = ConstructorParameters<typeof Loop>[0];

const PAUSE_MS = 1_000;

/** A loop whose rounds last until the test ends them. */
function newLoop(t: { teardown(work: () => unknown): void }, fields: Partial<LoopDeps> = {}) {
  const clock = new ManualClock();
  const logged: Record<string, unknown>[] = [];
  const began: number[] = [];
  const signals: AbortSignal[] = [];
  let running = 0;
  let round = Promise.withResolvers<void>();
  const loop = new Loop({
    clock,
    log: recordingLogger(logged),
    what: 'reading of things',
    work: (signal) => {
      began.push(clock.now() - 1_000);
      signals.push(signal);
      running += 1;
      round = Promise.withResolvers();
      return round.promise.finally(() => {
        running -= 1;
      });
    },
    pauseMs: PAUSE_MS,
    ...fields,
  });
  const settle = () => clock.advance(0);
  const end = async (error?: Error) => {
    if (error === undefined) round.resolve();
    else round.reject(error);
    await settle();
  };
  t.teardown(async () => {
    round.resolve();
    await loop.stop();
  });
  const rig = { clock, loop, logged, began, signals, settle, end };
  return Object.defineProperty(rig, 'running', { get: () => running }) as typeof rig & { running: number };
}

type Rig = ReturnType<typeof newLoop>;

/** Brings a loop that was just created into the state. */
const states: Record<string, (rig: Rig) => Promise<void> | void> = {
  new: () => {},
  working: ({ loop }) => loop.start(),
  'working, with the next round asked for': ({ loop }) => {
    loop.start();
    loop.trigger();
  },
  pausing: async ({ loop, end }) => {
    loop.start();
    await end();
  },
  'pausing after a failure': async ({ loop, end }) => {
    loop.start();
    await end(new DatabaseUnavailableError());
  },
  stopping: ({ loop }) => {
    loop.start();
    void loop.stop();
  },
  stopped: ({ loop }) => void loop.stop(),
};

const events: Record<string, (rig: Rig) => Promise<void> | void> = {
  start: ({ loop }) => loop.start(),
  'trigger()': ({ loop }) => loop.trigger(),
  'the round ends': ({ end }) => end(),
  'the round fails': ({ end }) => end(new DatabaseUnavailableError()),
  'the pause passes': ({ clock }) => clock.advance(PAUSE_MS),
  stop: ({ loop }) => void loop.stop(),
};

/** How many rounds have begun after the event, how many run, and how many timers there are. */
const outcomes: [state: string, event: string, rounds: number, running: number, timers: number][] = [
  ['new', 'start', 1, 1, 0],
  ['new', 'trigger()', 0, 0, 0],
  ['new', 'the pause passes', 0, 0, 0],
  ['new', 'stop', 0, 0, 0],
  ['working', 'start', 1, 1, 0],
  ['working', 'trigger()', 1, 1, 0],
  ['working', 'the round ends', 1, 0, 1],
  ['working', 'the round fails', 1, 0, 1],
  ['working', 'the pause passes', 1, 1, 0],
  ['working', 'stop', 1, 1, 0],
  ['working, with the next round asked for', 'start', 1, 1, 0],
  ['working, with the next round asked for', 'trigger()', 1, 1, 0],
  ['working, with the next round asked for', 'the round ends', 2, 1, 0],
  ['working, with the next round asked for', 'the round fails', 2, 1, 0],
  ['working, with the next round asked for', 'the pause passes', 1, 1, 0],
  ['working, with the next round asked for', 'stop', 1, 1, 0],
  ['pausing', 'start', 1, 0, 1],
  ['pausing', 'trigger()', 2, 1, 0],
  ['pausing', 'the pause passes', 2, 1, 0],
  ['pausing', 'stop', 1, 0, 0],
  ['pausing after a failure', 'start', 1, 0, 1],
  ['pausing after a failure', 'trigger()', 2, 1, 0],
  ['pausing after a failure', 'the pause passes', 2, 1, 0],
  ['pausing after a failure', 'stop', 1, 0, 0],
  ['stopping', 'start', 1, 1, 0],
  ['stopping', 'trigger()', 1, 1, 0],
  ['stopping', 'the round ends', 1, 0, 0],
  ['stopping', 'the round fails', 1, 0, 0],
  ['stopping', 'the pause passes', 1, 1, 0],
  ['stopping', 'stop', 1, 1, 0],
  ['stopped', 'start', 0, 0, 0],
  ['stopped', 'trigger()', 0, 0, 0],
  ['stopped', 'the pause passes', 0, 0, 0],
  ['stopped', 'stop', 0, 0, 0],
];

t.test('each event in each state', async (t) => {
  for (const [state, event, rounds, running, timers] of outcomes)
    await t.test(`${state}: ${event}`, async (t) => {
      const rig = newLoop(t);
      await states[state]?.(rig);
      await rig.settle();
      await events[event]?.(rig);
      await rig.settle();
      t.same({ rounds: rig.began.length, running: rig.running, timers: rig.clock.timers }, { rounds, running, timers });
    });
});

t.test('with first: pause, the first round comes after a pause, or soon', async (t) => {
  const [late, early] = [newLoop(t, { first: 'pause' }), newLoop(t, { first: 'pause' })];
  late.loop.start();
  await late.clock.advance(PAUSE_MS - 1);
  t.same(late.began, []);
  await late.clock.advance(1);
  t.same(late.began, [PAUSE_MS]);
  early.loop.start();
  early.loop.trigger();
  await early.settle();
  t.same(early.began, [0]);
});

t.test('a pause may depend on what the round found, and on how long it took', async (t) => {
  const { clock, loop, began, end } = newLoop(t, { pauseMs: (tookMs) => PAUSE_MS - tookMs });
  loop.start();
  await clock.advance(400);
  await end();
  await clock.advance(600);
  t.same(began, [0, PAUSE_MS], 'a fixed period');
  await clock.advance(5_000);
  await end();
  await clock.advance(0);
  t.same(began, [0, PAUSE_MS, 6_000], 'after a round that took longer, at once');
});

t.test('a pause without end has no timer, and trigger() ends it', async (t) => {
  const { clock, loop, began, settle, end } = newLoop(t, { pauseMs: Number.POSITIVE_INFINITY });
  loop.start();
  await end();
  t.equal(clock.timers, 0);
  await clock.advance(1e9);
  t.equal(began.length, 1);
  loop.trigger();
  await settle();
  t.equal(began.length, 2);
  await end();
  await loop.stop();
  t.equal(began.length, 2);
});

t.test('trigger() does not shorten the shortest pause, and is not forgotten during it', async (t) => {
  const { clock, loop, began, end } = newLoop(t, { minPauseMs: 200 });
  loop.start();
  loop.trigger();
  await end();
  await clock.advance(100);
  loop.trigger();
  await clock.advance(99);
  t.same(began, [0]);
  await clock.advance(1);
  t.same(began, [0, 200]);
  await end();
  await clock.advance(PAUSE_MS);
  t.same(began, [0, 200, 200 + PAUSE_MS], 'the shortest pause is a part of the pause');
});

t.test('after a failed round comes the retry, whatever is asked for', async (t) => {
  const { clock, loop, began, end } = newLoop(t, { retryMs: 3_000, minPauseMs: 200 });
  loop.start();
  await end(new DatabaseBusyError('locked'));
  loop.trigger();
  await clock.advance(2_999);
  t.same(began, [0]);
  await clock.advance(1);
  t.same(began, [0, 3_000]);
});

t.test('an outage is logged once, a defect once as an error, and their end', async (t) => {
  const { clock, loop, logged, end } = newLoop(t);
  loop.start();
  const defect = new TypeError('a defect');
  const unavailable = () => new DatabaseUnavailableError(new Error('connection refused'));
  const failures = [unavailable(), new DatabaseBusyError('slow'), defect, new TypeError('a defect'), unavailable()];
  for (const failure of [...failures, undefined, undefined]) {
    await end(failure);
    await clock.advance(PAUSE_MS);
  }
  matchLists(t, logged, [
    { level: 'warn', reason: 'connection refused', msg: 'reading of things failed' },
    { level: 'error', err: defect, msg: 'reading of things failed' },
    { level: 'warn', reason: 'connection refused', msg: 'reading of things failed' },
    { level: 'info', msg: 'reading of things succeeds again' },
  ]);
  t.equal(logged.length, 4);
});

t.test('work that throws at once is a failed round', async (t) => {
  const work = () => {
    throw new RangeError('at once');
  };
  const { clock, loop, logged, settle } = newLoop(t, { work });
  loop.start();
  await settle();
  matchLists(t, logged, [{ level: 'error', err: { message: 'at once' } }]);
  t.equal(clock.timers, 1, 'the loop continues');
});

t.test('a stop aborts the signal of the round and waits for it; its error does not matter', async (t) => {
  const { loop, logged, signals, settle, end } = newLoop(t);
  loop.start();
  t.equal(signals[0]?.aborted, false);
  const stopped: string[] = [];
  const stopping = ['first', 'second'].map((name) => loop.stop().then(() => stopped.push(name)));
  t.equal(signals[0]?.aborted, true);
  await settle();
  t.same(stopped, []);
  await end(new Error('the connections were cut'));
  await Promise.all(stopping);
  t.same([stopped, logged], [['first', 'second'], []]);
});

t.test('a round may end its loop', async (t) => {
  let rounds = 0;
  const rig: Rig = newLoop(t, {
    work: async () => {
      rounds += 1;
      void rig.loop.stop();
    },
  });
  rig.loop.start();
  await rig.clock.advance(3 * PAUSE_MS);
  t.same([rounds, rig.clock.timers], [1, 0]);
});
