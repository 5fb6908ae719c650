import t from 'tap';
import { Ticker } from '../../../lib/control/roster/ticker.ts';
import { ManualClock } from '../../support/manual-clock.ts';

function startTicker() {
  const clock = new ManualClock();
  const ticker = new Ticker({ clock, checkMs: 250 });
  const seen = { ms: 0, stalls: [] as number[] };
  ticker.onTick((tickMs) => {
    seen.ms += tickMs;
  });
  ticker.onStall(2000, (stalledMs) => seen.stalls.push(stalledMs));
  ticker.start();
  return { clock, ticker, seen };
}

t.test('healthy ticks hand out the time that passed', async (t) => {
  const { clock, seen } = startTicker();
  await clock.advance(1000);
  t.same(seen, { ms: 1000, stalls: [] });
});

t.test('a stall hands out nothing, and is told', async (t) => {
  const { clock, ticker, seen } = startTicker();
  await clock.advance(250);
  await clock.stall(20_000);
  t.same(seen, { ms: 250, stalls: [20_000] });
  t.equal(ticker.sinceHealthyMs, 20_000);
  await clock.advance(250);
  t.equal(seen.ms, 500);
  t.equal(ticker.sinceHealthyMs, 0);
});

t.test('a deadline in healthy ticks does not pass while this process stands still', async (t) => {
  const { clock, ticker } = startTicker();
  let fired = 0;
  ticker.after(1000, () => {
    fired += 1;
  });
  const cancelled = ticker.after(500, () => t.fail('was cancelled'));
  cancelled.cancel();
  await clock.advance(750);
  await clock.stall(60_000);
  t.equal(fired, 0);
  await clock.advance(250);
  t.equal(fired, 1);
  await clock.advance(5000);
  t.equal(fired, 1, 'once');
});
