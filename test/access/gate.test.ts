import t, { type Test } from 'tap';
import { type Coming, Gate, type GateConfig } from '../../lib/access/gate.ts';
import { SignIn } from '../../lib/access/sign-in.ts';
import { tokenMigrations } from '../../lib/access/token-schema.ts';
import { Tokens } from '../../lib/access/tokens.ts';
import { silentLogger } from '../../lib/log.ts';
import { morayMigrations } from '../../lib/moray/moray-schema.ts';
import { systemRandom } from '../../lib/ports/random.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { freshDatabase } from '../support/postgres.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const ANOTHER = '564d5b45-3a8c-4c1f-9d0a-00000000dead';
const ADDRESS = '192.0.2.1';

async function start(t: Test, config: Partial<GateConfig> = {}) {
  const { database } = await freshDatabase(t, { migrations: [...morayMigrations, ...tokenMigrations] });
  const clock = new ManualClock();
  const signIn = new SignIn({ database, clock, log: silentLogger });
  const gate = new Gate({
    config: {
      access: 'tokens',
      trustedNetworks: [],
      requestsPerSecond: 0,
      connectionsPerSource: 0,
      failedSignInsPerMinute: 3,
      ...config,
    },
    clock,
    signIn,
  });
  const tokens = new Tokens({ database, random: systemRandom });
  const made = async (role: 'reader' | 'agent', serverUuid?: string) => {
    const { token } = await tokens.create({ name: systemRandom.uuid(), role, createdBy: 'the test', serverUuid });
    return [`Bearer ${token}`];
  };
  return { clock, gate, made };
}

t.test('where access is open anybody may do everything', async (t) => {
  const { gate } = await start(t, { access: 'open' });
  const actor = await gate.enter({ address: ADDRESS, authorization: [], need: 'admin' });
  t.equal(actor.name, 'open');
  t.equal(gate.tooMuch(coming()), undefined);
});

t.test('without a token only what anyone may', async (t) => {
  const { gate } = await start(t);
  await gate.enter({ address: ADDRESS, authorization: [], need: 'anyone' });
  await t.rejects(gate.enter({ address: ADDRESS, authorization: [], need: 'reader' }), { code: 'Unauthorized' });
});

t.test(
  'a name and a password say nothing: they help nobody in, count as no failed sign-in, and keep nobody out',
  async (t) => {
    const trustedNetworks = [{ text: '192.0.2.0/24', roles: ['operator'] }] as const;
    const { gate } = await start(t, { trustedNetworks });
    const basic = [`Basic ${Buffer.from('admin:secret').toString('base64')}`];
    const enter = (address: string, authorization = basic) => gate.enter({ address, authorization, need: 'operator' });
    for (let time = 0; time < 10; time++) t.same((await enter(ADDRESS)).roles, ['operator']);
    for (let time = 0; time < 10; time++)
      await t.rejects(enter('198.51.100.1'), { code: 'Unauthorized', message: /token is required/ });
    t.equal(gate.stats.signInsFailed, 0);
    await t.rejects(
      enter(ADDRESS, ['Bearer nonsense']),
      { code: 'Unauthorized' },
      'what claims to be a token is looked at',
    );
    await t.rejects(enter(ADDRESS, [...basic, ...basic]), { code: 'Unauthorized' });
    t.equal(gate.stats.signInsFailed, 2);
  },
);

t.test('a role too small is 403 and says which it takes', async (t) => {
  const { gate, made } = await start(t);
  const authorization = await made('reader');
  t.same((await gate.enter({ address: ADDRESS, authorization, need: 'reader' })).roles, ['reader']);
  await t.rejects(gate.enter({ address: ADDRESS, authorization, need: 'operator' }), {
    statusCode: 403,
    message: /needs the role operator/,
  });
});

t.test('an agent’s token of one server is good for no other', async (t) => {
  const { gate, made } = await start(t);
  const authorization = await made('agent', SERVER);
  await gate.enter({ address: ADDRESS, authorization, need: 'agent', serverUuid: SERVER });
  for (const serverUuid of [ANOTHER, undefined])
    await t.rejects(gate.enter({ address: ADDRESS, authorization, need: 'agent', serverUuid }), { code: 'Forbidden' });
});

t.test('a trusted network stands for a token, but not for a bad one', async (t) => {
  const { gate } = await start(t, { trustedNetworks: [{ text: '192.0.2.0/24', roles: ['operator'] }] });
  t.equal((await gate.enter({ address: ADDRESS, authorization: [], need: 'operator' })).name, 'network 192.0.2.0/24');
  t.equal((await gate.enter({ address: `::ffff:${ADDRESS}`, authorization: [], need: 'reader' })).roles[0], 'operator');
  await t.rejects(gate.enter({ address: ADDRESS, authorization: ['Bearer x'], need: 'reader' }), {
    code: 'Unauthorized',
  });
  await t.rejects(gate.enter({ address: '198.51.100.1', authorization: [], need: 'reader' }), { code: 'Unauthorized' });
});

t.test('two Authorization headers are none', async (t) => {
  const { gate, made } = await start(t);
  const [header = ''] = await made('reader');
  await t.rejects(gate.enter({ address: ADDRESS, authorization: [header, header], need: 'reader' }), {
    code: 'Unauthorized',
  });
});

t.test('failed sign-ins are limited by source, and a neighbour with a good token goes on', async (t) => {
  const { clock, gate, made } = await start(t);
  const authorization = await made('reader');
  const enter = (headers: readonly string[], address = ADDRESS) =>
    gate.enter({ address, authorization: headers, need: 'reader' });
  await enter(authorization);
  for (let each = 0; each < 3; each++) await t.rejects(enter(['Bearer wrong']), { code: 'Unauthorized' });
  await t.rejects(enter(['Bearer wrong']), { statusCode: 429, code: 'TooManyRequests', retryAfterSeconds: 20 });
  await t.rejects(
    enter(await made('reader')),
    { code: 'TooManyRequests' },
    'one that was never seen here may be a guess as well',
  );
  await enter(authorization);
  await t.rejects(enter(['Bearer wrong'], '192.0.2.2'), { code: 'Unauthorized' }, 'others are not concerned');
  await clock.advance(20_000);
  await t.rejects(enter(['Bearer wrong']), { code: 'Unauthorized' });
  t.equal(gate.stats.signInsFailed, 5);
});

t.test('wrong tokens that come all at once are as few as those that come one after the other', async (t) => {
  const { gate, made } = await start(t);
  const enter = (authorization: readonly string[]) => gate.enter({ address: ADDRESS, authorization, need: 'reader' });
  const guess = () => `Bearer cnapi_${systemRandom.uuid().replaceAll('-', '')}_${'x'.repeat(43)}`;
  const outcomes = await Promise.allSettled(Array.from({ length: 50 }, () => enter([guess()])));
  const codes = outcomes.map((each) => (each.status === 'rejected' ? each.reason.code : 'let in'));
  t.equal(codes.filter((code) => code === 'Unauthorized').length, 3, 'so many were looked up');
  t.equal(codes.filter((code) => code === 'TooManyRequests').length, 47);

  const fresh = await start(t);
  for (let each = 0; each < 20; each++)
    await fresh.gate.enter({ address: ADDRESS, authorization: await fresh.made('reader'), need: 'reader' });
  t.equal(fresh.gate.stats.signInsFailed, 0, 'good ones that are new here do not count');
  await t.rejects(enter(await made('reader')), { code: 'TooManyRequests' });
});

t.test('requests are limited by source, with the time to wait', async (t) => {
  const { clock, gate } = await start(t, { requestsPerSecond: 2 });
  const ask = (address = ADDRESS) => gate.tooMuch(coming({ address }));
  t.same(
    [1, 2, 3, 4].map(() => ask()),
    [undefined, undefined, undefined, undefined],
  );
  t.match(ask(), { statusCode: 429, retryAfterSeconds: 1, message: /requestsPerSecond/ });
  t.equal(ask('192.0.2.2'), undefined);
  await clock.advance(500);
  t.equal(ask(), undefined);
  t.equal(gate.stats.requestsLimited, 1);
});

t.test(
  'connections are limited by source: those too many are told, more are cut off, and the others are served',
  async (t) => {
    const { gate, made } = await start(t, { connectionsPerSource: 2 });
    const standing = Array.from({ length: 53 }, () => gate.connected(ADDRESS));
    t.same(standing.slice(0, 3), ['counted', 'counted', 'excess']);
    t.same(standing.slice(51), ['excess', 'cut']);
    t.match(gate.tooMuch(coming({ isExcess: true })), { statusCode: 429, message: /connectionsPerSource/ });
    t.equal(gate.tooMuch(coming()), undefined, 'who was there before goes on');
    const authorization = await made('reader');
    t.match(
      gate.tooMuch(coming({ isExcess: true, authorization })),
      { statusCode: 429 },
      'a stranger’s token may be a guess',
    );
    await gate.enter({ address: ADDRESS, authorization, need: 'reader' });
    t.equal(
      gate.tooMuch(coming({ isExcess: true, authorization })),
      undefined,
      'one that is known to be good is let in',
    );
    for (let each = 0; each < 51; each++) gate.disconnected(ADDRESS);
    t.equal(gate.connected(ADDRESS), 'excess');
    gate.disconnected(ADDRESS);
    gate.disconnected(ADDRESS);
    t.equal(gate.connected(ADDRESS), 'counted');
  },
);

t.test('refused links are counted, and few of them are worth a line', async (t) => {
  const { gate } = await start(t);
  const lines = Array.from({ length: 100 }, () => gate.linkRefused()).filter((isWorthIt) => isWorthIt);
  t.equal(lines.length, 10);
  t.equal(gate.stats.linksRefused, 100);
});

const coming = (fields: Partial<Coming> = {}): Coming => ({
  address: ADDRESS,
  authorization: [],
  isExcess: false,
  ...fields,
});
