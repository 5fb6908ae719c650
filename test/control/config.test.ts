import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { ConfigError, configKeys, loadConfig, parseConfig } from '../../lib/control/config.ts';

const least = { databaseUrl: 'postgres://user@127.0.0.1/cnapi' };

t.test('a database URL is enough, other keys have defaults, and the configuration is immutable', async (t) => {
  const config = parseConfig(least);
  t.match(config, { host: '127.0.0.1', port: 8080, datacenter: 'local', domain: 'cnapi.internal', silenceMs: 2000 });
  t.equal(Object.isFrozen(config), true);
});

t.test('several hosts, a pooler and a Sentinel group are accepted as given', async (t) => {
  const urls = {
    databaseUrl: 'postgres://user@h1:5432,h2/cnapi?target_session_attrs=read-write',
    databaseDirectUrl: 'postgres://user@h1,h2/cnapi',
    redisUrl: 'redis+sentinel://:password@h1:26379,h2/mymaster/2',
  };
  t.match(parseConfig({ ...urls, databasePooler: 'transaction' }), urls);
});

t.test('the environment overrides the file and may give numbers as texts', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'cnapi-config-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'config.json');
  writeFileSync(file, JSON.stringify({ ...least, port: 8081, logLevel: 'warn' }));
  const uuid = '0a1b2c3d-0000-4000-8000-000000000001';
  const config = loadConfig(file, { CNAPI_PORT: '8082', CNAPI_UUID: uuid, CNAPI_TEST_ANYTHING: 'ignored', HOME: '/' });
  t.match(config, { port: 8082, logLevel: 'warn', cnapiUuid: uuid });
  t.throws(() => loadConfig(join(folder, 'absent.json'), {}), { name: 'ConfigError', message: /absent\.json/ });
});

const wrong: { name: string; input: Record<string, unknown>; message: RegExp }[] = [
  { name: 'an unknown key is refused by name', input: { ...least, databseUrl: 'x' }, message: /databseUrl/ },
  { name: 'a missing database URL is named', input: {}, message: /databaseUrl: is required/ },
  {
    name: 'an invalid host is named without showing the URL',
    input: { databaseUrl: 'postgres://u:secret@h1:5432,h2:x/db' },
    message: /^Configuration: databaseUrl: (?!.*secret).*HOST:PORT/,
  },
  {
    name: 'a password with a / is explained without showing it',
    input: { databaseUrl: 'postgres://u:secret/x@h/db' },
    message: /^Configuration: databaseUrl: (?!.*secret).*password write \/ as %2F/,
  },
  {
    name: 'a port without a host is named',
    input: { ...least, databaseDirectUrl: 'postgres://u:secret@:5432/db' },
    message: /^Configuration: databaseDirectUrl: (?!.*secret).*HOST:PORT/,
  },
  {
    name: 'a URL that asks for a standby is refused',
    input: { databaseUrl: 'postgres://u@h1,h2/db?target_session_attrs=any' },
    message: /databaseUrl: .*target_session_attrs=any.*read-write/,
  },
  { name: 'an unknown pooler is named', input: { ...least, databasePooler: 'session' }, message: /databasePooler/ },
  {
    name: 'LISTEN/NOTIFY through a pooler is refused',
    input: { ...least, databasePooler: 'transaction' },
    message: /databaseDirectUrl or redisUrl/,
  },
  { name: 'an invalid Redis URL is named', input: { ...least, redisUrl: 'http://h' }, message: /redisUrl: .*sentinel/ },
  {
    name: 'a Sentinel group without a master is refused',
    input: { ...least, redisUrl: 'redis+sentinel://:secret@h1,h2' },
    message: /^Configuration: redisUrl: (?!.*secret)/,
  },
  { name: 'a port out of range is named', input: { ...least, port: 70_000 }, message: /port/ },
  { name: 'an empty port is not a number', input: { ...least, port: '' }, message: /port/ },
  { name: 'an empty number is not a number', input: { ...least, maxAgents: null }, message: /maxAgents/ },
  {
    name: 'a silence shorter than two heartbeats is refused',
    input: { ...least, silenceMs: 1500 },
    message: /silenceMs/,
  },
  {
    name: 'the records of heartbeats must be less than half their lifetime apart',
    input: { ...least, legacyHeartbeatRecordMs: 6000 },
    message: /legacyHeartbeatRecordMs/,
  },
  {
    name: "the grace for a legacy agent's silence must be at least two ticks",
    input: { ...least, legacyGraceMs: 400 },
    message: /legacyGraceMs/,
  },
  {
    name: 'a certificate without its key is refused',
    input: { ...least, tlsCertFile: '/c.pem' },
    message: /tlsCertFile and tlsKeyFile/,
  },
  {
    name: 'a key without its certificate is refused',
    input: { ...least, tlsKeyFile: '/k.pem' },
    message: /tlsCertFile and tlsKeyFile/,
  },
  {
    name: 'a public address without credentials is refused with advice',
    input: { ...least, host: '10.0.0.1' },
    message: /host 10\.0\.0\.1 .*access is open: set access to "tokens".*cnapi token create/,
  },
  ...['0.0.0.0', '::', 'example.org'].map((host) => ({
    name: `open access is refused at ${host}`,
    input: { ...least, host },
    message: /access is open/,
  })),
  {
    name: 'a wildcard address is refused as the address for agents',
    input: { ...least, access: 'tokens', host: '0.0.0.0' },
    message: /advertiseHost/,
  },
  {
    name: 'access has two possible values',
    input: { ...least, access: 'tls' },
    message: /access: is neither open nor tokens/,
  },
  {
    name: 'trusted networks are refused with open access',
    input: { ...least, trustedNetworks: { '10.0.0.0/24': 'operator' } },
    message: /trustedNetworks/,
  },
  {
    name: 'a trusted network that contains everybody is refused',
    input: { ...least, access: 'tokens', trustedNetworks: { '0.0.0.0/0': 'reader' } },
    message: /trustedNetworks\.0\.0\.0\.0\/0: is wider/,
  },
  {
    name: 'a network cannot be an admin',
    input: { ...least, access: 'tokens', trustedNetworks: { '10.0.0.0/24': 'admin' } },
    message: /trustedNetworks\.10\.0\.0\.0\/24/,
  },
  { name: 'a lease shorter than three beats is refused', input: { ...least, leaseMs: 2000 }, message: /leaseMs/ },
];
for (const { name, input, message } of wrong) {
  t.test(name, async (t) => {
    t.throws(() => parseConfig(input), { message });
    t.throws(() => parseConfig(input), ConfigError);
  });
}

t.test('a variable of the environment has the words of its key', async (t) => {
  const environment = { CNAPI_DATABASE_URL: least.databaseUrl, CNAPI_ANSWER_MEMORY_MIB: '64', CNAPI_BEAT_MS: '500' };
  t.match(loadConfig(undefined, environment), { answerMemoryMiB: 64, beatMs: 500 });
});

t.test('an environment variable for an unknown key is refused by name', async (t) => {
  t.throws(() => loadConfig(undefined, { CNAPI_PROT: '1' }), { message: /CNAPI_PROT/ });
});

t.test('with tokens asked for an instance may be reached from anywhere, and networks may be trusted', async (t) => {
  const input = { ...least, access: 'tokens', host: '0.0.0.0', advertiseHost: '10.0.0.1' };
  const trustedNetworks = { '10.0.0.0/24': 'operator', 'fd00::/64': ['reader', 'agent'] };
  const parsed = [
    { text: '10.0.0.0/24', roles: ['operator'] },
    { text: 'fd00::/64', roles: ['reader', 'agent'] },
  ];
  t.same(parseConfig({ ...input, trustedNetworks }).trustedNetworks, parsed);
  const text = '10.0.0.0/24=operator, fd00::/64=reader+agent';
  t.same(loadConfig(undefined, environmentOf({ ...input, trustedNetworks: text })).trustedNetworks, parsed);
  t.throws(() => loadConfig(undefined, environmentOf({ ...input, trustedNetworks: 'everybody' })), /trustedNetworks/);
});

function environmentOf(config: Record<string, string>): Record<string, string> {
  const name = (key: string) => `CNAPI_${key.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
  return Object.fromEntries(Object.entries(config).map(([key, value]) => [name(key), value]));
}

t.test('every key has a description', async (t) => {
  t.same(
    configKeys().filter(({ description }) => description === ''),
    [],
  );
});
