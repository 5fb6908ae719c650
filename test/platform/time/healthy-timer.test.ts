import t from 'tap';
import { HealthyTimer } from '../../../lib/platform/time/healthy-timer.ts';
import { ManualClock } from '../../support/manual-clock.ts';

function startTicker() {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: 250 });
  const seen = { ms: 0, stalls: [] as number[] };
  healthyTimer.onTick((tickMs) => {
    seen.ms += tickMs;
  });
  healthyTimer.onStall(2000, (stalledMs) => seen.stalls.push(stalledMs));
  healthyTimer.start();
  return { clock, healthyTimer, seen };
}

t.test('healthy ticks report the time that passed', async (t) => {
  const { clock, seen } = startTicker();
  await clock.advance(1000);
  t.same(seen, { ms: 1000, stalls: [] });
});

t.test('a stall counts for no time and is reported', async (t) => {
  const { clock, healthyTimer, seen } = startTicker();
  await clock.advance(250);
  await clock.stall(20_000);
  t.same(seen, { ms: 250, stalls: [20_000] });
  t.equal(healthyTimer.sinceHealthyMs, 20_000);
  await clock.advance(250);
  t.equal(seen.ms, 500);
  t.equal(healthyTimer.sinceHealthyMs, 0);
});

t.test('a deadline in healthy ticks does not pass while this process is stopped', async (t) => {
  const { clock, healthyTimer } = startTicker();
  let fired = 0;
  healthyTimer.after(1000, () => {
    fired += 1;
  });
  const cancelled = healthyTimer.after(500, () => t.fail('was cancelled'));
  cancelled.cancel();
  await clock.advance(750);
  await clock.stall(60_000);
  t.equal(fired, 0);
  await clock.advance(250);
  t.equal(fired, 1);
  await clock.advance(5000);
  t.equal(fired, 1, 'once');
});

t.test('each tick, healthy or not, reports how late it is', async (t) => {
  const { clock, healthyTimer } = startTicker();
  const lateMs: number[] = [];
  healthyTimer.onFire((ms) => lateMs.push(ms));
  await clock.advance(500);
  await clock.stall(1_000);
  t.same(lateMs, [0, 0, 750]);
});

t.test('a tick counts only if the poll after it ends within a period, and before the timer stops', async (t) => {
  const { clock, healthyTimer, seen } = startTicker();
  const polls: (() => void)[] = [];
  clock.afterPoll = (callback) => polls.push(callback);
  const endPoll = () => polls.shift()?.();
  await clock.advance(250);
  endPoll();
  t.equal(seen.ms, 250);
  await clock.advance(250);
  await clock.advance(200);
  endPoll();
  t.equal(seen.ms, 500, 'a poll of 200 ms');
  await clock.advance(400);
  endPoll();
  t.equal(seen.ms, 500, 'a poll of 350 ms');
  healthyTimer.stop();
  endPoll();
  t.equal(seen.ms, 500, 'a poll that ended after the stop');
});

t.test('the last healthy moment is now, until a tick is more than a period overdue', async (t) => {
  const { clock, healthyTimer } = startTicker();
  await clock.advance(250);
  const healthyAt = clock.now();
  await clock.advance(249);
  t.equal(healthyTimer.lastHealthyAt, clock.now());
  clock.afterPoll = () => undefined;
  await clock.advance(200);
  t.equal(healthyTimer.lastHealthyAt, clock.now());
  await clock.advance(52);
  t.equal(healthyTimer.lastHealthyAt, healthyAt);
});

t.test('standing still for exactly the limit is not a stall', async (t) => {
  const { clock, seen } = startTicker();
  await clock.stall(2_000);
  t.same(seen.stalls, []);
  await clock.stall(2_001);
  t.same(seen.stalls, [2_001]);
});
