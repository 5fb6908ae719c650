import t, { type Test } from 'tap';
import {
  Authenticator,
  type AuthenticatorConfig,
  type UnparsedRequest,
} from '../../../lib/control/access/authenticator.ts';
import { TokenAuthenticator } from '../../../lib/control/access/token-authenticator.ts';
import { Tokens } from '../../../lib/control/access/tokens.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshDatabase } from '../../support/postgres.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const ANOTHER = '564d5b45-3a8c-4c1f-9d0a-00000000dead';
const ADDRESS = '192.0.2.1';

async function start(t: Test, config: Partial<AuthenticatorConfig> = {}) {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'access') });
  const clock = new ManualClock();
  const tokenAuthenticator = new TokenAuthenticator({
    database,
    backgroundDatabase: database,
    clock,
    log: silentLogger,
  });
  const authenticator = new Authenticator({
    config: {
      access: 'tokens',
      trustedNetworks: [],
      requestsPerSecond: 0,
      connectionsPerSource: 0,
      failedAuthenticationsPerMinute: 3,
      ...config,
    },
    clock,
    tokenAuthenticator,
  });
  const tokens = new Tokens({ database, random: systemRandom });
  const made = async (role: 'reader' | 'agent', serverUuid?: string) => {
    const { token } = await tokens.create({ name: systemRandom.uuid(), role, createdBy: 'the test', serverUuid });
    return [`Bearer ${token}`];
  };
  return { clock, authenticator, made };
}

t.test('with open access, anyone may do everything', async (t) => {
  const { authenticator } = await start(t, { access: 'open' });
  const actor = await authenticator.authenticateAndAuthorize({
    address: ADDRESS,
    authorization: [],
    requiredRole: 'admin',
  });
  t.equal(actor.name, 'open');
  t.equal(authenticator.rateLimitRefusal(coming()), undefined);
});

t.test('without a token, only public routes are allowed', async (t) => {
  const { authenticator } = await start(t);
  await authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization: [], requiredRole: 'anyone' });
  await t.rejects(
    authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization: [], requiredRole: 'reader' }),
    {
      code: 'Unauthorized',
    },
  );
});

t.test('Basic credentials are ignored: they admit nobody and do not count as failed authentications', async (t) => {
  const trustedNetworks = [{ text: '192.0.2.0/24', roles: ['operator'] }] as const;
  const { authenticator } = await start(t, { trustedNetworks });
  const basic = [`Basic ${Buffer.from('admin:secret').toString('base64')}`];
  const authenticate = (address: string, authorization = basic) =>
    authenticator.authenticateAndAuthorize({ address, authorization, requiredRole: 'operator' });
  for (let time = 0; time < 10; time++) t.same((await authenticate(ADDRESS)).roles, ['operator']);
  for (let time = 0; time < 10; time++)
    await t.rejects(authenticate('198.51.100.1'), { code: 'Unauthorized', message: /token is required/ });
  t.equal(authenticator.stats.authenticationsFailed, 0);
  await t.rejects(authenticate(ADDRESS, ['Bearer nonsense']), { code: 'Unauthorized' }, 'a Bearer token is checked');
  await t.rejects(authenticate(ADDRESS, [...basic, ...basic]), { code: 'Unauthorized' });
  t.equal(authenticator.stats.authenticationsFailed, 2);
});

t.test('an insufficient role is 403 and names the role needed', async (t) => {
  const { authenticator, made } = await start(t);
  const authorization = await made('reader');
  t.same(
    (await authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization, requiredRole: 'reader' })).roles,
    ['reader'],
  );
  await t.rejects(
    authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization, requiredRole: 'operator' }),
    {
      statusCode: 403,
      message: /needs the role operator/,
    },
  );
});

t.test('an agent token that is bound to one server is refused for others', async (t) => {
  const { authenticator, made } = await start(t);
  const authorization = await made('agent', SERVER);
  await authenticator.authenticateAndAuthorize({
    address: ADDRESS,
    authorization,
    requiredRole: 'agent',
    serverUuid: SERVER,
  });
  for (const serverUuid of [ANOTHER, undefined])
    await t.rejects(
      authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization, requiredRole: 'agent', serverUuid }),
      {
        code: 'Forbidden',
      },
    );
});

t.test('a trusted network replaces a missing token, but not a wrong one', async (t) => {
  const { authenticator } = await start(t, { trustedNetworks: [{ text: '192.0.2.0/24', roles: ['operator'] }] });
  t.equal(
    (await authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization: [], requiredRole: 'operator' }))
      .name,
    'network 192.0.2.0/24',
  );
  t.equal(
    (
      await authenticator.authenticateAndAuthorize({
        address: `::ffff:${ADDRESS}`,
        authorization: [],
        requiredRole: 'reader',
      })
    ).roles[0],
    'operator',
  );
  await t.rejects(
    authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization: ['Bearer x'], requiredRole: 'reader' }),
    {
      code: 'Unauthorized',
    },
  );
  await t.rejects(
    authenticator.authenticateAndAuthorize({ address: '198.51.100.1', authorization: [], requiredRole: 'reader' }),
    {
      code: 'Unauthorized',
    },
  );
});

t.test('two Authorization headers are refused', async (t) => {
  const { authenticator, made } = await start(t);
  const [header = ''] = await made('reader');
  await t.rejects(
    authenticator.authenticateAndAuthorize({
      address: ADDRESS,
      authorization: [header, header],
      requiredRole: 'reader',
    }),
    {
      code: 'Unauthorized',
    },
  );
});

t.test(
  'failed authentications are limited per source, and other sources and known tokens are not affected',
  async (t) => {
    const { clock, authenticator, made } = await start(t);
    const authorization = await made('reader');
    const authenticate = (headers: readonly string[], address = ADDRESS) =>
      authenticator.authenticateAndAuthorize({ address, authorization: headers, requiredRole: 'reader' });
    await authenticate(authorization);
    for (let each = 0; each < 3; each++) await t.rejects(authenticate(['Bearer wrong']), { code: 'Unauthorized' });
    await t.rejects(authenticate(['Bearer wrong']), {
      statusCode: 429,
      code: 'TooManyRequests',
      retryAfterSeconds: 20,
    });
    await t.rejects(authenticate(await made('reader')), { code: 'TooManyRequests' }, 'an unknown token may be a guess');
    await authenticate(authorization);
    await t.rejects(
      authenticate(['Bearer wrong'], '192.0.2.2'),
      { code: 'Unauthorized' },
      'other sources are not affected',
    );
    await clock.advance(20_000);
    await t.rejects(authenticate(['Bearer wrong']), { code: 'Unauthorized' });
    t.equal(authenticator.stats.authenticationsFailed, 5);
  },
);

t.test('concurrent guesses are limited like consecutive ones', async (t) => {
  const { authenticator, made } = await start(t);
  const authenticate = (authorization: readonly string[]) =>
    authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization, requiredRole: 'reader' });
  const guess = () => `Bearer cnapi_${systemRandom.uuid().replaceAll('-', '')}_${'x'.repeat(43)}`;
  const outcomes = await Promise.allSettled(Array.from({ length: 50 }, () => authenticate([guess()])));
  const codes = outcomes.map((each) => (each.status === 'rejected' ? each.reason.code : 'let in'));
  t.equal(codes.filter((code) => code === 'Unauthorized').length, 3, 'only these were looked up');
  t.equal(codes.filter((code) => code === 'TooManyRequests').length, 47);

  const fresh = await start(t);
  for (let each = 0; each < 20; each++)
    await fresh.authenticator.authenticateAndAuthorize({
      address: ADDRESS,
      authorization: await fresh.made('reader'),
      requiredRole: 'reader',
    });
  t.equal(fresh.authenticator.stats.authenticationsFailed, 0, 'valid tokens that are new here do not count');
  await t.rejects(authenticate(await made('reader')), { code: 'TooManyRequests' });
});

t.test('requests are limited per source, with a retry-after', async (t) => {
  const { clock, authenticator } = await start(t, { requestsPerSecond: 2 });
  const ask = (address = ADDRESS) => authenticator.rateLimitRefusal(coming({ address }));
  t.same(
    [1, 2, 3, 4].map(() => ask()),
    [undefined, undefined, undefined, undefined],
  );
  t.match(ask(), { statusCode: 429, retryAfterSeconds: 1, message: /requestsPerSecond/ });
  t.equal(ask('192.0.2.2'), undefined);
  await clock.advance(500);
  t.equal(ask(), undefined);
  t.equal(authenticator.stats.requestsLimited, 1);
});

t.test('connections are limited per source: excess ones are refused, further ones cut', async (t) => {
  const { authenticator, made } = await start(t, { connectionsPerSource: 2 });
  const standing = Array.from({ length: 53 }, () => authenticator.connected(ADDRESS));
  t.same(standing.slice(0, 3), ['counted', 'counted', 'excess']);
  t.same(standing.slice(51), ['excess', 'cut']);
  t.match(authenticator.rateLimitRefusal(coming({ isExcess: true })), {
    statusCode: 429,
    message: /connectionsPerSource/,
  });
  t.equal(authenticator.rateLimitRefusal(coming()), undefined, 'an earlier connection is served');
  const authorization = await made('reader');
  t.match(
    authenticator.rateLimitRefusal(coming({ isExcess: true, authorization })),
    { statusCode: 429 },
    'an unknown token may be a guess',
  );
  await authenticator.authenticateAndAuthorize({ address: ADDRESS, authorization, requiredRole: 'reader' });
  t.equal(
    authenticator.rateLimitRefusal(coming({ isExcess: true, authorization })),
    undefined,
    'a known token is admitted',
  );
  for (let each = 0; each < 51; each++) authenticator.disconnected(ADDRESS);
  t.equal(authenticator.connected(ADDRESS), 'excess');
  authenticator.disconnected(ADDRESS);
  authenticator.disconnected(ADDRESS);
  t.equal(authenticator.connected(ADDRESS), 'counted');
});

t.test('refused links are counted, and only some are logged', async (t) => {
  const { authenticator } = await start(t);
  const lines = Array.from({ length: 100 }, () => authenticator.linkRefused()).filter((isWorthIt) => isWorthIt);
  t.equal(lines.length, 10);
  t.equal(authenticator.stats.linksRefused, 100);
});

const coming = (fields: Partial<UnparsedRequest> = {}): UnparsedRequest => ({
  address: ADDRESS,
  authorization: [],
  isExcess: false,
  ...fields,
});
