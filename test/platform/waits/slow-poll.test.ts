import t from 'tap';
import type { Bus } from '../../../lib/platform/bus/bus.ts';
import type { Clock } from '../../../lib/platform/clock.ts';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import type { Logger } from '../../../lib/platform/log.ts';
import { SlowPoll } from '../../../lib/platform/waits/slow-poll.ts';
import { until } from '../../support/until.ts';

/** A slow poll whose pauses the test ends; the test gives its `work`. */
function setUp(t: { teardown(work: () => unknown): void }) {
  const pauses: number[] = [];
  const logged: string[] = [];
  let [endPause, changeHealth] = [() => {}, () => {}];
  const state = { isHealthy: true, rounds: 0, listeners: 0, work: async (): Promise<void> => {} };
  const clock = {
    sleep(delayMs: number, signal?: AbortSignal) {
      pauses.push(delayMs);
      return new Promise<void>((resolve) => {
        endPause = resolve;
        signal?.addEventListener('abort', () => resolve());
        if (signal?.aborted) resolve();
      });
    },
  } as Partial<Clock> as Clock;
  const bus = {
    isHealthy: () => state.isHealthy,
    onHealthChange(listener: () => void) {
      state.listeners += 1;
      changeHealth = listener;
      return {
        close() {
          state.listeners -= 1;
        },
      };
    },
  } as Partial<Bus> as Bus;
  const note = (level: string) => (_fields: unknown, message: string) => logged.push(`${level}: ${message}`);
  const poll = new SlowPoll({
    clock,
    bus,
    log: { warn: note('warn'), error: note('error') } as unknown as Logger,
    config: { slowPollMs: 5000, slowPollNoBusMs: 1000 },
    what: 'things',
    work: () => {
      state.rounds += 1;
      return state.work();
    },
  });
  t.teardown(() => poll.stop());
  return { poll, state, pauses, logged, endPause: () => endPause(), changeHealth: () => changeHealth() };
}

t.test('a round follows each pause, which is shorter while the bus is lost', async (t) => {
  const { poll, state, pauses, endPause } = setUp(t);
  poll.start();
  t.equal(state.rounds, 0, 'no round at the start');
  endPause();
  await until(() => pauses.length === 2, 'the second pause');
  t.equal(state.rounds, 1);
  state.isHealthy = false;
  endPause();
  await until(() => pauses.length === 3, 'the third pause');
  t.same(pauses, [5000, 5000, 1000]);
});

t.test("a change of the bus's health starts a round at once, or one more after a running round", async (t) => {
  const { poll, state, pauses, changeHealth } = setUp(t);
  const gate = Promise.withResolvers<void>();
  state.work = () => gate.promise;
  poll.start();
  changeHealth();
  await until(() => state.rounds === 1, 'the round');
  poll.soon();
  poll.soon();
  t.equal(state.rounds, 1, 'one round at a time');
  gate.resolve();
  await until(() => pauses.length === 3, 'the pause after the next round');
  t.equal(state.rounds, 2);
});

t.test('a round that fails is repeated, and an outage is logged once', async (t) => {
  const { poll, state, pauses, logged, endPause } = setUp(t);
  const failures = [new DatabaseUnavailableError(), new DatabaseUnavailableError(), new Error('a defect'), undefined];
  state.work = async () => {
    const failure = failures[state.rounds - 1];
    if (failure !== undefined) throw failure;
  };
  poll.start();
  for (const round of [1, 2, 3, 4]) {
    endPause();
    await until(() => pauses.length === round + 1, `round ${round} to start`);
  }
  t.same(logged, ['warn: slow poll of things: no database', 'error: slow poll of things failed']);
});

t.test('a stop ends the pause and waits for the round, and nothing runs afterwards', async (t) => {
  const { poll, state, pauses, logged, changeHealth, endPause } = setUp(t);
  const gate = Promise.withResolvers<void>();
  state.work = () => gate.promise;
  poll.start();
  endPause();
  await until(() => state.rounds === 1, 'the round');
  let isStopped = false;
  const stopping = poll.stop().then(() => {
    isStopped = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(isStopped, false);
  gate.reject(new Error('the connections were cut'));
  await stopping;
  changeHealth();
  poll.soon();
  t.same([state.rounds, pauses.length, state.listeners], [1, 1, 0]);
  t.same(logged, [], 'the result of the last round does not matter');

  const idle = setUp(t);
  idle.poll.start();
  await idle.poll.stop();
  t.equal(idle.state.rounds, 0);
});
