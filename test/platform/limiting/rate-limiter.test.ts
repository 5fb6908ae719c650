import t from 'tap';
import { RateLimit, RateLimiter, RateLimiters } from '../../../lib/platform/limiting/rate-limiter.ts';

t.test('the burst may be taken at once, then as much as the rate allows', async (t) => {
  const limiter = new RateLimiter(new RateLimit({ perSecond: 2, burst: 3 }));
  t.same(
    [1, 2, 3].map(() => limiter.take(0)),
    [0, 0, 0],
  );
  t.equal(limiter.take(0), 500);
  t.equal(limiter.take(250), 250, 'a refused attempt costs nothing');
  t.equal(limiter.take(500), 0);
  t.equal(limiter.take(500), 500);
  t.same(
    [1, 2, 3, 4].map(() => limiter.take(60_000)),
    [0, 0, 0, 500],
    'no more than the burst is saved',
  );
});

t.test('any rate gives its whole burst, at any time', async (t) => {
  for (const perSecond of [1 / 6, 1 / 7, 10 / 60, 3, 0.1 + 0.2, 333]) {
    for (const now of [0, 0.1, 1e6 / 3, 1e10 / 3]) {
      const limiter = new RateLimiter(new RateLimit({ perSecond, burst: 10 }));
      const taken = Array.from({ length: 11 }, () => limiter.take(now));
      t.same(taken.slice(0, 10), Array(10).fill(0), `${perSecond} per second at ${now}`);
      t.ok(taken.at(-1), 'and no more');
      t.equal(limiter.take(now + (taken.at(-1) ?? 0)), 0, 'the next one when it says');
    }
  }
});

t.test('what is given back may be taken again, up to the burst', async (t) => {
  const limiter = new RateLimiter(new RateLimit({ perSecond: 1, burst: 1 }));
  limiter.giveBack();
  t.same([limiter.take(0), limiter.take(0)], [0, 1000]);
  limiter.giveBack();
  limiter.giveBack();
  t.same([limiter.take(0), limiter.take(0)], [0, 1000]);
});

t.test('a cost above what is left is charged, and delays the next', async (t) => {
  const limit = new RateLimit({ perSecond: 1000, burst: 100 });
  const limiter = new RateLimiter(limit);
  t.equal(limiter.charge(100, 0), 0);
  t.equal(limiter.charge(10, 0), 10);
  t.same([limiter.waitMs(0), limiter.waitMs(9), limiter.waitMs(10)], [10, 1, 0]);
  const fullAt = limit.charge(110, 0, 0);
  t.same(
    [0, 10, 110, 1e6].map((now) => limit.left(fullAt, now)),
    [-10, 0, 100, 100],
  );
});

t.test('keys are independent, and their number is limited', async (t) => {
  const limiters = new RateLimiters(new RateLimit({ perSecond: 1, burst: 1 }));
  t.equal(limiters.of('s0').take(0), 0);
  t.equal(limiters.of('s1').take(0), 0);
  for (let each = 2; each < 50_000; each++) limiters.of(`s${each}`).take(0);
  limiters.of('s0');
  limiters.of('one more').take(0);
  t.equal(limiters.of('s0').take(0), 1000, 'recently used');
  t.equal(limiters.of('s1').take(0), 0, 'dropped, so its limit starts anew');
  t.equal(RateLimiters.ifLimited({ perSecond: 0, burst: 0 }), undefined, '0 stands for no limit');
});
