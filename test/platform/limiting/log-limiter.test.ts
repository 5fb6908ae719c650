import t from 'tap';
import { LogLimiter } from '../../../lib/platform/limiting/log-limiter.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';

t.test('after ten warnings at once ten a minute are logged, and each counts those left out', async (t) => {
  let now = 0;
  const lines: unknown[] = [];
  const log = Object.assign(Object.create(silentLogger), { warn: (fields: unknown) => void lines.push(fields) });
  const limiter = new LogLimiter({ log, clock: { ...systemClock, now: () => now } });
  for (let n = 0; n < 1000; n++) limiter.warn({ n }, 'again');
  t.equal(lines.length, 10);
  now = 60_000;
  limiter.warn({ n: 1000 }, 'again');
  limiter.warn({ n: 1001 }, 'again');
  t.same(lines.slice(10), [{ n: 1000, unlogged: 990 }, { n: 1001 }]);
});
