import t, { type Test } from 'tap';
import { Gate, type GateConfig, type UnparsedRequest } from '../../../lib/control/access/gate.ts';
import { SignIn } from '../../../lib/control/access/sign-in.ts';
import { tokenMigrations } from '../../../lib/control/access/token-schema.ts';
import { Tokens } from '../../../lib/control/access/tokens.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { morayMigrations } from '../../../lib/platform/moray/moray-schema.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { freshDatabase } from '../../support/postgres.ts';

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

t.test('with open access, anyone may do everything', async (t) => {
  const { gate } = await start(t, { access: 'open' });
  const actor = await gate.enter({ address: ADDRESS, authorization: [], need: 'admin' });
  t.equal(actor.name, 'open');
  t.equal(gate.tooMuch(coming()), undefined);
});

t.test('without a token, only public routes are allowed', async (t) => {
  const { gate } = await start(t);
  await gate.enter({ address: ADDRESS, authorization: [], need: 'anyone' });
  await t.rejects(gate.enter({ address: ADDRESS, authorization: [], need: 'reader' }), { code: 'Unauthorized' });
});

t.test('Basic credentials are ignored: they admit nobody and are no failed sign-in', async (t) => {
  const trustedNetworks = [{ text: '192.0.2.0/24', roles: ['operator'] }] as const;
  const { gate } = await start(t, { trustedNetworks });
  const basic = [`Basic ${Buffer.from('admin:secret').toString('base64')}`];
  const enter = (address: string, authorization = basic) => gate.enter({ address, authorization, need: 'operator' });
  for (let time = 0; time < 10; time++) t.same((await enter(ADDRESS)).roles, ['operator']);
  for (let time = 0; time < 10; time++)
    await t.rejects(enter('198.51.100.1'), { code: 'Unauthorized', message: /token is required/ });
  t.equal(gate.stats.signInsFailed, 0);
  await t.rejects(enter(ADDRESS, ['Bearer nonsense']), { code: 'Unauthorized' }, 'a Bearer token is checked');
  await t.rejects(enter(ADDRESS, [...basic, ...basic]), { code: 'Unauthorized' });
  t.equal(gate.stats.signInsFailed, 2);
});

t.test('an insufficient role is 403 and names the role needed', async (t) => {
  const { gate, made } = await start(t);
  const authorization = await made('reader');
  t.same((await gate.enter({ address: ADDRESS, authorization, need: 'reader' })).roles, ['reader']);
  await t.rejects(gate.enter({ address: ADDRESS, authorization, need: 'operator' }), {
    statusCode: 403,
    message: /needs the role operator/,
  });
});

t.test('an agent token that is bound to one server is refused for others', async (t) => {
  const { gate, made } = await start(t);
  const authorization = await made('agent', SERVER);
  await gate.enter({ address: ADDRESS, authorization, need: 'agent', serverUuid: SERVER });
  for (const serverUuid of [ANOTHER, undefined])
    await t.rejects(gate.enter({ address: ADDRESS, authorization, need: 'agent', serverUuid }), { code: 'Forbidden' });
});

t.test('a trusted network replaces a missing token, but not a wrong one', async (t) => {
  const { gate } = await start(t, { trustedNetworks: [{ text: '192.0.2.0/24', roles: ['operator'] }] });
  t.equal((await gate.enter({ address: ADDRESS, authorization: [], need: 'operator' })).name, 'network 192.0.2.0/24');
  t.equal((await gate.enter({ address: `::ffff:${ADDRESS}`, authorization: [], need: 'reader' })).roles[0], 'operator');
  await t.rejects(gate.enter({ address: ADDRESS, authorization: ['Bearer x'], need: 'reader' }), {
    code: 'Unauthorized',
  });
  await t.rejects(gate.enter({ address: '198.51.100.1', authorization: [], need: 'reader' }), { code: 'Unauthorized' });
});

t.test('two Authorization headers are refused', async (t) => {
  const { gate, made } = await start(t);
  const [header = ''] = await made('reader');
  await t.rejects(gate.enter({ address: ADDRESS, authorization: [header, header], need: 'reader' }), {
    code: 'Unauthorized',
  });
});

t.test('failed sign-ins are limited per source, and other sources and known tokens are not affected', async (t) => {
  const { clock, gate, made } = await start(t);
  const authorization = await made('reader');
  const enter = (headers: readonly string[], address = ADDRESS) =>
    gate.enter({ address, authorization: headers, need: 'reader' });
  await enter(authorization);
  for (let each = 0; each < 3; each++) await t.rejects(enter(['Bearer wrong']), { code: 'Unauthorized' });
  await t.rejects(enter(['Bearer wrong']), { statusCode: 429, code: 'TooManyRequests', retryAfterSeconds: 20 });
  await t.rejects(enter(await made('reader')), { code: 'TooManyRequests' }, 'an unknown token may be a guess');
  await enter(authorization);
  await t.rejects(enter(['Bearer wrong'], '192.0.2.2'), { code: 'Unauthorized' }, 'other sources are not affected');
  await clock.advance(20_000);
  await t.rejects(enter(['Bearer wrong']), { code: 'Unauthorized' });
  t.equal(gate.stats.signInsFailed, 5);
});

t.test('concurrent guesses are limited like consecutive ones', async (t) => {
  const { gate, made } = await start(t);
  const enter = (authorization: readonly string[]) => gate.enter({ address: ADDRESS, authorization, need: 'reader' });
  const guess = () => `Bearer cnapi_${systemRandom.uuid().replaceAll('-', '')}_${'x'.repeat(43)}`;
  const outcomes = await Promise.allSettled(Array.from({ length: 50 }, () => enter([guess()])));
  const codes = outcomes.map((each) => (each.status === 'rejected' ? each.reason.code : 'let in'));
  t.equal(codes.filter((code) => code === 'Unauthorized').length, 3, 'only these were looked up');
  t.equal(codes.filter((code) => code === 'TooManyRequests').length, 47);

  const fresh = await start(t);
  for (let each = 0; each < 20; each++)
    await fresh.gate.enter({ address: ADDRESS, authorization: await fresh.made('reader'), need: 'reader' });
  t.equal(fresh.gate.stats.signInsFailed, 0, 'valid tokens that are new here do not count');
  await t.rejects(enter(await made('reader')), { code: 'TooManyRequests' });
});

t.test('requests are limited per source, with a retry-after', async (t) => {
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

t.test('connections are limited per source: excess ones are refused, further ones cut', async (t) => {
  const { gate, made } = await start(t, { connectionsPerSource: 2 });
  const standing = Array.from({ length: 53 }, () => gate.connected(ADDRESS));
  t.same(standing.slice(0, 3), ['counted', 'counted', 'excess']);
  t.same(standing.slice(51), ['excess', 'cut']);
  t.match(gate.tooMuch(coming({ isExcess: true })), { statusCode: 429, message: /connectionsPerSource/ });
  t.equal(gate.tooMuch(coming()), undefined, 'an earlier connection is served');
  const authorization = await made('reader');
  t.match(
    gate.tooMuch(coming({ isExcess: true, authorization })),
    { statusCode: 429 },
    'an unknown token may be a guess',
  );
  await gate.enter({ address: ADDRESS, authorization, need: 'reader' });
  t.equal(gate.tooMuch(coming({ isExcess: true, authorization })), undefined, 'a known token is admitted');
  for (let each = 0; each < 51; each++) gate.disconnected(ADDRESS);
  t.equal(gate.connected(ADDRESS), 'excess');
  gate.disconnected(ADDRESS);
  gate.disconnected(ADDRESS);
  t.equal(gate.connected(ADDRESS), 'counted');
});

t.test('refused links are counted, and only some are logged', async (t) => {
  const { gate } = await start(t);
  const lines = Array.from({ length: 100 }, () => gate.linkRefused()).filter((isWorthIt) => isWorthIt);
  t.equal(lines.length, 10);
  t.equal(gate.stats.linksRefused, 100);
});

const coming = (fields: Partial<UnparsedRequest> = {}): UnparsedRequest => ({
  address: ADDRESS,
  authorization: [],
  isExcess: false,
  ...fields,
});
