import t from 'tap';
import { parseRedisUrl } from '../../../lib/platform/bus/redis-url.ts';

t.test('the URL of a single server is passed to the driver unchanged', async (t) => {
  t.same(parseRedisUrl('rediss://u:p@h:1/2'), { kind: 'server', url: 'rediss://u:p@h:1/2' });
});

t.test('the URL of a Sentinel group names sentinels, master and credentials', async (t) => {
  t.same(parseRedisUrl('redis+sentinel://s1:1,s2,[::1]:3/mymaster'), {
    kind: 'sentinel',
    sentinels: [
      { host: 's1', port: 1 },
      { host: 's2', port: 26_379 },
      { host: '::1', port: 3 },
    ],
    masterName: 'mymaster',
    access: { tls: false, db: 0 },
  });
  const url = 'rediss+sentinel://u:p%40:x@s1/m/3?sentinelUsername=s&sentinelPassword=q%26';
  const access = { tls: true, db: 3, username: 'u', password: 'p@:x', sentinelUsername: 's', sentinelPassword: 'q&' };
  t.match(parseRedisUrl(url), { masterName: 'm', access });
  t.strictSame(Object.keys((parseRedisUrl('redis+sentinel://:p@s1/m') as { access: object }).access), [
    'tls',
    'db',
    'password',
  ]);
});

const wrong = [
  'http://h',
  'redis+sentinel://s1',
  'redis+sentinel://:secret@s1,s2/',
  'redis+sentinel://:secret@s1:x/m',
  'redis+sentinel://:secret@s1,/m',
  'redis+sentinel://:secret@s1/m/two',
  'redis+sentinel://:secret%@s1/m',
  'redis+sentinel://s1/m?password=secret',
];
for (const url of wrong) {
  t.test(`${url.replace('secret', 'x')} is refused without showing the password`, async (t) => {
    t.throws(() => parseRedisUrl(url), TypeError);
    t.throws(() => parseRedisUrl(url), { message: /^(?!.*secret)/ });
  });
}
