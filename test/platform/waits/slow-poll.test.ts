import t from 'tap';
import type { Bus } from '../../../lib/platform/bus/bus.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { SlowPoll } from '../../../lib/platform/waits/slow-poll.ts';
import { ManualClock } from '../../support/manual-clock.ts';

/** A slow poll that has started, and the times of its rounds. */
function setUp(t: { teardown(work: () => unknown): void }) {
  const clock = new ManualClock();
  const startedAt = clock.now();
  const rounds: number[] = [];
  const listeners = new Set<() => void>();
  const state = { isHealthy: true };
  const bus = {
    isHealthy: () => state.isHealthy,
    onHealthChange(listener: () => void) {
      listeners.add(listener);
      return { close: () => void listeners.delete(listener) };
    },
  } as Partial<Bus> as Bus;
  const poll = new SlowPoll({
    clock,
    bus,
    log: silentLogger,
    config: { slowPollMs: 5000, slowPollNoBusMs: 1000 },
    what: 'things',
    work: async () => {
      rounds.push(clock.now() - startedAt);
    },
  });
  poll.start();
  t.teardown(() => poll.stop());
  const setHealth = async (isHealthy: boolean) => {
    state.isHealthy = isHealthy;
    for (const listener of listeners) listener();
    await clock.advance(0);
  };
  return { clock, poll, rounds, listeners, setHealth };
}

t.test('a round follows each pause, which is shorter while the bus is lost', async (t) => {
  const { clock, rounds, setHealth } = setUp(t);
  await clock.advance(10_000);
  t.same(rounds, [5_000, 10_000]);
  await setHealth(false);
  await clock.advance(2_000);
  t.same(rounds, [5_000, 10_000, 10_000, 11_000, 12_000], 'at once, then each second');
  await setHealth(true);
  await clock.advance(5_000);
  t.same(rounds.slice(5), [12_000, 17_000]);
});

t.test('a round may be asked for', async (t) => {
  const { clock, poll, rounds } = setUp(t);
  await clock.advance(1_000);
  poll.trigger();
  await clock.advance(0);
  await clock.advance(5_000);
  t.same(rounds, [1_000, 6_000]);
});

t.test('after a stop no round runs, and nothing listens to the bus', async (t) => {
  const { clock, poll, rounds, listeners } = setUp(t);
  await poll.stop();
  poll.trigger();
  await clock.advance(60_000);
  t.same([rounds, listeners.size, clock.timers], [[], 0, 0]);
});
