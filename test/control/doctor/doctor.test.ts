/**
 * `cnapi doctor` as a program, over a real Postgres, a real Redis and a real instance, healthy and
 * broken in each known way.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { createTokenDirectly } from '../../../lib/control/access/direct-token.ts';
import { runChecks } from '../../../lib/control/doctor/doctor.ts';
import type { Finding } from '../../../lib/control/doctor/finding.ts';
import { insertRun } from '../../../lib/control/roster/membership/instance-store.ts';
import type { ZoneInstance } from '../../../lib/platform/dns/zone.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { json, scripted } from '../../client/rig.ts';
import { startNameServer } from '../../platform/dns/support.ts';
import { freshZone } from '../../support/apps.ts';
import { Authority } from '../../support/certificates.ts';
import { giveFormerSchema } from '../../support/former-schema.ts';
import { matchLists } from '../../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { freshDatabase, openDatabase, startTestPostgres } from '../../support/postgres.ts';
import { noRedis, sharedRedisUrl } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const MAIN = path.resolve(import.meta.dirname, '../../../lib/cli/main.ts');

async function run(...args: string[]) {
  const child = spawn(process.execPath, [MAIN, 'doctor', ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { HOME: '/' },
  });
  const [said, complained, [code]] = await Promise.all([
    child.stdout.toArray(),
    child.stderr.toArray(),
    once(child, 'exit'),
  ]);
  return { code: code as number, stdout: said.join(''), stderr: complained.join('') };
}

async function configFile(t: Test, config: Record<string, unknown>, mode = 0o600): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'doctor-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const file = path.join(folder, 'config.json');
  await writeFile(file, JSON.stringify(config));
  await chmod(file, mode);
  return file;
}

async function diagnose(t: Test, config: Record<string, unknown>, mode?: number): Promise<Finding[]> {
  const file = await configFile(t, config, mode);
  return runChecks({ configFile: file, env: {}, dns: undefined, clock: systemClock, random: systemRandom });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

t.test('without a configuration, doctor says how to name one', async (t) => {
  const [only, ...others] = await runChecks({
    configFile: undefined,
    env: {},
    dns: undefined,
    clock: systemClock,
    random: systemRandom,
  });
  t.match(only, { level: 'fail', found: /^there is no configuration to check/, todo: /--config FILE/ });
  t.equal(others.length, 0);
  const [wrong] = await runChecks({
    configFile: undefined,
    env: { CNAPI_DATABASE_URL: 'x' },
    dns: undefined,
    clock: systemClock,
    random: systemRandom,
  });
  t.match(wrong, { level: 'fail', found: /databaseUrl/, todo: /docs\/configuration.md/ });
});

t.test('with a healthy instance, every check is ok', { skip: noRedis }, async (t) => {
  const zone = await freshZone(t);
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue({ names: 'IP:127.0.0.1,DNS:cnapi.east.example.com' });
  const named = { datacenter: 'east', domain: 'example.com', access: 'tokens', redisUrl: await sharedRedisUrl() };
  const config = { ...named, tlsCertFile: certFile, tlsKeyFile: keyFile };
  const { url, cnapiUuid } = await zone.startApp(config);
  const file = await configFile(t, { ...config, cnapiUuid, databaseUrl: zone.url, port: Number(new URL(url).port) });
  const before = await run('--config', file, '--json');
  t.equal(before.code, 1, 'no admin token exists yet');
  t.match(
    JSON.parse(before.stdout).findings.find(({ level }: Finding) => level === 'fail'),
    {
      part: 'access',
      found: /no admin has one/,
      todo: /cnapi token create admin --role admin/,
    },
  );
  await createTokenDirectly(
    { file, env: {} },
    {
      name: 'doctor',
      role: 'admin',
      expiresInSeconds: undefined,
      serverUuid: undefined,
    },
  );
  const { code, stdout, stderr } = await run('--config', file);
  t.equal(code, 0, stdout);
  for (const line of [
    /^ok {4}config .*every key is known/m,
    /^ok {4}files .*mode 600/m,
    /^ok {4}database .*Postgres \d+ answers/m,
    /^ok {4}database .*tables are as they should be/m,
    /^ok {4}database .*18 connections for this instance/m,
    /^ok {4}access .*1 of them good for an admin/m,
    /^(ok {4}|warn {2})bus .*Redis brought a message back in/m,
    /^ok {4}port .*this instance answers at/m,
    /^ok {4}instances .*https:\/\/127\.0\.0\.1:\d+ answers; its clock is this machine/m,
    /^ok {4}certificate .*valid until .*, 6 days from now|^warn {2}certificate .*valid until/m,
    /^ok {4}certificate .*for 127\.0\.0\.1 and cnapi\.east\.example\.com/m,
    /^(ok {4}|warn {2})limits .*may open \S+ files/m,
  ])
    t.match(stdout, line);
  t.match(stderr, /\d+ ok, \d+ to look at, 0 to fix/);
});

t.test('doctor distinguishes a wrong password from a missing user and checks standbys', async (t) => {
  const server = await startTestPostgres();
  t.teardown(() => server.close());
  const database = openDatabase(server.url);
  t.teardown(() => database.stop());
  await database.query(`create role guarded login password 'right'`);
  const { rows } = await database.query<{ file: string }>(`select current_setting('hba_file') as file`);
  const lines = ['host all guarded 127.0.0.1/32 scram-sha-256', 'host all all 127.0.0.1/32 trust'];
  await database.query(`copy (select unnest(array['${lines.join("','")}'])) to '${rows[0]?.file}'`);
  await database.query('select pg_reload_conf()');
  const as = (password: string) => server.url.replace('cnapi@', `guarded:${password}@`);
  const refused = () =>
    diagnose(t, { databaseUrl: as('wrong') }).then((all) => all.filter(({ part }) => part === 'database'));
  const [found] = await until(async () => {
    const findings = await refused();
    return findings.length === 1 && findings;
  }, 'the server to require passwords');
  t.match(found, {
    level: 'fail',
    found: /password authentication failed for user "guarded"/,
    todo: /password in databaseUrl/,
  });
  t.notMatch(JSON.stringify(await refused()), /wrong/, 'no finding shows the password');
  const [right] = (await diagnose(t, { databaseUrl: as('right') })).filter(({ part }) => part === 'database');
  t.match(right, { level: 'fail', found: /guarded may not create tables there/, todo: /grant create, usage/ });

  const durability = (commit: string, names: string) =>
    until(async () => {
      await database.query(`alter system set synchronous_standby_names = '${names}'`);
      await database.query('select pg_reload_conf()');
      const all = await diagnose(t, { databaseUrl: `${server.url}?options=-c%20synchronous_commit%3D${commit}` });
      return all.find(({ found }) => found.startsWith(`synchronous_commit is ${commit}`) && found.includes(names));
    }, `${commit} ${names}`);
  t.match(await durability('on', 'any 2 (b, c)'), {
    level: 'fail',
    found: /0 are connected and 2 must be: no commit ever ends/,
  });
  t.match(await durability('local', 'b'), { level: 'warn', found: /no commit waits for a standby/ });
});

t.test('doctor names a database of a development version, and how to start with an empty one', async (t) => {
  const { url, database } = await freshDatabase(t);
  await giveFormerSchema(database);
  const found = (await diagnose(t, { databaseUrl: url })).filter(({ part }) => part === 'database');
  matchLists(
    t,
    found.filter(({ level }) => level === 'fail'),
    [{ found: /^it has tables of a development version/, todo: /npm start -- --data FOLDER/ }],
  );
});

t.test('doctor resolves the service name and compares it with the live instances', async (t) => {
  const zone = await freshZone(t);
  const { url, cnapiUuid } = await zone.startApp();
  const here = { uuid: cnapiUuid, host: '127.0.0.1', port: Number(new URL(url).port) };
  const nameOf = async (...instances: ZoneInstance[]) => {
    const server = await startNameServer(t, instances);
    const file = await configFile(t, { databaseUrl: zone.url });
    const deps = { env: {}, clock: systemClock, random: systemRandom };
    const all = await runChecks({ ...deps, configFile: file, dns: `127.0.0.1:${server.port}` });
    return all.find(({ part }) => part === 'dns');
  };
  t.match(await nameOf(here), { level: 'ok', found: /names 1 instances; 1 live/ });
  t.match(await nameOf(), { level: 'warn', found: /of which it lacks 127\.0\.0\.1:/ });
  const gone = { ...here, uuid: crypto.randomUUID(), port: 1 };
  t.match(await nameOf(here, gone), { level: 'warn', found: /no instance runs at 127\.0\.0\.1:1/ });
});

t.test('doctor checks that the instance itself, and no other process, answers on its port', async (t) => {
  const zone = await freshZone(t);
  const { url, cnapiUuid, stop } = await zone.startApp();
  const port = Number(new URL(url).port);
  const of = async (part: string, config: Record<string, unknown>) =>
    (await diagnose(t, { databaseUrl: zone.url, ...config })).filter((one) => one.part === part);
  const [[own], [copied], [elsewhere]] = await Promise.all([
    of('port', { port, cnapiUuid }),
    of('port', { port, cnapiUuid: crypto.randomUUID() }),
    of('port', { port, cnapiUuid, databaseUrl: (await freshDatabase(t)).url }),
  ]);
  t.match(own, { level: 'ok', found: /^this instance answers/ });
  t.match(copied, {
    level: 'fail',
    found: new RegExp(`another instance \\(${cnapiUuid}\\) holds`),
    todo: /port and a cnapiUuid of its own/,
  });
  t.match(elsewhere, { level: 'fail', found: /^another instance holds/ }, 'an instance of another database');
  t.match((await of('instances', {}))[0], { level: 'ok', found: `${url} answers` });

  await stop();
  const answers = async (headers: Record<string, string>, body: unknown) => {
    const server = await scripted(t, (response) => json(response, 200, body, headers));
    const identity = {
      cnapiUuid: crypto.randomUUID(),
      url: server.url,
      host: '127.0.0.1',
      port: 1,
      pid: 1,
      version: '0.2.0',
    };
    await insertRun(zone.database, crypto.randomUUID(), identity, null);
    return server.url;
  };
  const unknownProgram = await answers({}, { ready: true });
  const unwell = await answers({ server: 'cnapi/0.2.0' }, { ready: false });
  const found = await of('instances', {});
  t.match(
    found.find((one) => one.found.includes(unknownProgram)),
    { level: 'warn', found: /something other than cnapi answers/ },
  );
  t.match(
    found.find((one) => one.found.includes(unwell)),
    { level: 'warn', found: /not ready/ },
  );
  const isAtCapacity = (findings: Finding[]) => findings.some((one) => /^the zone is at capacity/.test(one.found));
  const say = (admission: string) => zone.database.query('update cnapi_instances set admission = $1', [admission]);
  await say('open');
  t.notOk(isAtCapacity(await of('instances', {})), 'instances that admit agents');
  await say('paced');
  t.ok(isAtCapacity(await of('instances', {})), 'instances that all refuse agents');
});

t.test('doctor names each broken setting and what to do', async (t) => {
  const { url } = await freshDatabase(t);
  const authority = await Authority.create(t);
  const good = await authority.issue();
  const other = await authority.issue({ names: 'DNS:elsewhere.example' });
  const expired = await authority.issue({ fromMs: Date.now() - 9e7, untilMs: Date.now() - 1000 });
  const squatter = createServer((socket) => socket.on('error', () => undefined).resume()).listen(0, '127.0.0.1');
  await once(squatter, 'listening');
  t.teardown(() => squatter.close());
  const { port: taken } = squatter.address() as AddressInfo;
  const closed = await freePort();
  const base = { databaseUrl: url, port: await freePort() };
  const at = (change: (url: URL) => void): string => {
    const changed = new URL(url);
    change(changed);
    return changed.href;
  };
  const tls = ({ certFile, keyFile }: { certFile: string; keyFile: string }) => ({
    tlsCertFile: certFile,
    tlsKeyFile: keyFile,
  });
  const rows: [name: string, config: Record<string, unknown>, part: string, expected: Record<string, unknown>][] = [
    ['an unknown key', { ...base, databseUrl: 'x' }, 'config', { level: 'fail', found: /unknown key databseUrl/ }],
    [
      'open access on a public address',
      { ...base, host: '0.0.0.0' },
      'config',
      { level: 'fail', found: /access is open/ },
    ],
    ['a missing databaseUrl', {}, 'config', { level: 'fail', found: /databaseUrl: is required/ }],
    [
      'a missing database',
      { ...base, databaseUrl: at((one) => (one.pathname = '/none')) },
      'database',
      { level: 'fail', found: /"none" does not exist/, todo: /createdb/ },
    ],
    [
      'a missing user',
      { ...base, databaseUrl: at((one) => (one.username = 'nobody')) },
      'database',
      { level: 'fail', found: /role "nobody" does not exist/, todo: /pg_hba.conf/ },
    ],
    [
      'an unknown host',
      { ...base, databaseUrl: 'postgres://nowhere.invalid/x' },
      'database',
      { level: 'fail', todo: /host in databaseUrl is right/ },
    ],
    [
      'no server on the port',
      { ...base, databaseUrl: `postgres://127.0.0.1:${closed}/x` },
      'database',
      { level: 'fail', found: /ECONNREFUSED/, todo: /listen_addresses/ },
    ],
    [
      'too many connections',
      { ...base, databasePoolSize: 200, heartbeatMs: 1000 },
      'database',
      { found: /210 connections for this instance/ },
    ],
    [
      'no Redis',
      { ...base, redisUrl: `redis://127.0.0.1:${closed}` },
      'bus',
      { level: 'warn', found: /no message came back from Redis/, todo: /redisUrl/ },
    ],
    ['a name that cannot be resolved', base, 'dns', { level: 'warn', found: /cannot be resolved/ }],
    [
      'a port in use by another program',
      { ...base, port: taken },
      'port',
      { level: 'fail', found: /something else holds/ },
    ],
    [
      'an address of another machine',
      { ...base, host: '192.0.2.1', access: 'tokens' },
      'port',
      { level: 'fail', found: /not an address of this machine/ },
    ],
    [
      'no token of an admin',
      { ...base, host: '192.0.2.1', access: 'tokens' },
      'access',
      { level: 'fail', found: /no admin has one/ },
    ],
    ['an expired certificate', { ...base, ...tls(expired) }, 'certificate', { level: 'fail', found: /has expired/ }],
    [
      'a missing key',
      { ...base, tlsCertFile: good.certFile, tlsKeyFile: '/none' },
      'certificate',
      { level: 'fail', found: /^tlsKeyFile \/none cannot be read: ENOENT/ },
    ],
    [
      'a key of another certificate',
      { ...base, tlsCertFile: good.certFile, tlsKeyFile: other.keyFile },
      'certificate',
      { level: 'fail', found: /is not the key/ },
    ],
    [
      'a certificate for another name',
      { ...base, ...tls(other) },
      'certificate',
      { level: 'warn', found: /it is not for 127.0.0.1, nor for cnapi.local.cnapi.internal/ },
    ],
    [
      'a certificate that expires soon',
      { ...base, ...tls(good) },
      'certificate',
      { level: 'warn', found: /valid until .*, 6 days from now/ },
    ],
  ];
  const waiting = [...rows];
  const work = async () => {
    for (let row = waiting.shift(); row; row = waiting.shift()) {
      const [name, config, part, expected] = row;
      const found = (await diagnose(t, config)).filter((one) => one.part === part);
      const [exact] = found.filter((one) => isLike(one, expected));
      t.match(exact ?? found[0], { part, ...expected }, name);
      t.ok(
        found.every(({ level, todo }) => level === 'ok' || (todo ?? '') !== ''),
        `${name}: each finding says what to do`,
      );
    }
  };
  await Promise.all(Array.from({ length: 6 }, work));
  const shown = await diagnose(t, base, 0o644);
  matchLists(
    t,
    shown.filter(({ part }) => part === 'files'),
    [{ level: 'warn', found: /mode 644/, todo: /^chmod o-rwx / }],
  );
});

function isLike(finding: Finding, expected: Record<string, unknown>): boolean {
  return Object.entries(expected).every(([key, value]) => {
    const text = String(finding[key as keyof Finding]);
    return value instanceof RegExp ? value.test(text) : text === value;
  });
}
