import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import mustache from 'mustache';
import t from 'tap';
import { agentOptions } from '../../lib/agent/option-table.ts';
import { parseAgentOptions } from '../../lib/agent/options.ts';
import { type Config, configKeys, parseConfig } from '../../lib/control/config.ts';
import { matchLists } from '../support/match-lists.ts';
import { freshDatabase } from '../support/postgres.ts';

const root = path.resolve(import.meta.dirname, '../..');
const read = (name: string) => readFileSync(path.join(root, name), 'utf8');

/** Errors in the nesting of elements and the quoting of attributes. */
function malformations(xml: string): string[] {
  const text = xml.replace(/<!--[\s\S]*?-->|<\?[\s\S]*?\?>|<!DOCTYPE[^>]*>/g, '');
  const open: string[] = [];
  const wrong: string[] = [];
  for (const [tag, slash, name, attributes, empty] of text.matchAll(
    /<(\/?)([\w:.-]+)((?:[^"'<>]|"[^"]*"|'[^']*')*?)(\/?)>/g,
  )) {
    if (!/^(\s+[\w:.-]+=("[^"<]*"|'[^'<]*'))*\s*$/.test(attributes ?? '')) wrong.push(`attributes of ${tag}`);
    if (slash) {
      if (open.pop() !== name) wrong.push(`unexpected ${tag}`);
    } else if (!empty) open.push(name ?? '');
  }
  return [...wrong, ...open.map((name) => `${name} is not closed`)];
}

/** The longest time that an instance needs to leave (docs/scaling.md, "A drain, step by step"). */
const longestDrainSeconds = 75;

const metadata = {
  auto: { ZONENAME: '6f2a1d9e-3a6c-4f0e-9b53-0a4c3a1d2e11' },
  CNAPI_DATABASE_URL: 'postgres://cnapi:s%2Fcret@10.0.0.5,10.0.0.6/cnapi',
  datacenter_name: 'us-east-1',
  dns_domain: 'example.com',
};

/** Renders as config-agent does. */
const render = (service: string, view: Record<string, unknown>): string =>
  mustache.render(read(`sapi_manifests/${service}/template`), view);

/** A value for each key of the instance's template, and the parsed result. */
const settable: Record<string, [value: string, key: string, parsed: unknown]> = {
  CNAPI_HOST: ['0.0.0.0', 'host', '0.0.0.0'],
  CNAPI_PORT: ['80', 'port', 80],
  CNAPI_ADVERTISE_HOST: ['10.0.0.9', 'advertiseHost', '10.0.0.9'],
  CNAPI_TLS_CERT_FILE: ['/data/cert.pem', 'tlsCertFile', '/data/cert.pem'],
  CNAPI_TLS_KEY_FILE: ['/data/key.pem', 'tlsKeyFile', '/data/key.pem'],
  rabbitmq: ['guest:guest:10.0.0.20:5672', 'rabbitmq', 'guest:guest:10.0.0.20:5672'],
  CNAPI_SMT_DISABLED: ['true', 'smtEnabled', false],
  CNAPI_ACCESS: ['tokens', 'access', 'tokens'],
  CNAPI_AGENT_NETWORKS: ['10.0.0.0/24,fd00::/64', 'agentNetworks', ['10.0.0.0/24', 'fd00::/64']],
  CNAPI_TRUSTED_NETWORKS: ['10.0.0.0/24=reader+agent', 'trustedNetworks', [{ text: '10.0.0.0/24' }]],
  CNAPI_PLACEMENT_STEPS: [
    'hard-filter-setup, hard-filter-reservoir|identity',
    'placementSteps',
    [['hard-filter-setup'], ['hard-filter-reservoir', 'identity']],
  ],
  CNAPI_PLACEMENT_WEIGHTS: [
    'unreserved_ram=3,next_reboot=-1',
    'placementWeights',
    { unreserved_ram: 3, next_reboot: -1 },
  ],
  CNAPI_PLACEMENT_RATIOS: ['cpu=2', 'placementRatios', { cpu: 2, ram: 1, disk: 1 }],
  CNAPI_PLACEMENT_MAX_VMS: ['100', 'placementMaxVms', 100],
  CNAPI_PLACEMENT_CLAIMS_PER_CALLER: ['50', 'placementClaimsPerCaller', 50],
  CNAPI_ANNEALER_MAX_RUNS: ['20', 'annealerMaxRuns', 20],
  CNAPI_ANNEALER_JIGS: ['noop, script', 'annealerJigs', ['noop', 'script']],
  CNAPI_REQUESTS_PER_SECOND: ['100', 'requestsPerSecond', 100],
  CNAPI_CONNECTIONS_PER_SOURCE: ['200', 'connectionsPerSource', 200],
  CNAPI_HANDSHAKES_PER_SECOND: ['100', 'handshakesPerSecond', 100],
  CNAPI_FAILED_AUTHENTICATIONS_PER_MINUTE: ['5', 'failedAuthenticationsPerMinute', 5],
  CNAPI_ANSWER_MEMORY_MIB: ['64', 'answerMemoryMiB', 64],
  CNAPI_ANSWER_MEMORY_PER_CALLER_MIB: ['16', 'answerMemoryPerCallerMiB', 16],
  CNAPI_EVENT_STREAMS_PER_CALLER: ['5', 'eventStreamsPerCaller', 5],
  CNAPI_WAITS_PER_CALLER: ['50', 'waitsPerCaller', 50],
  CNAPI_LOG_LINES_PER_SOURCE: ['10', 'logLinesPerSource', 10],
  CNAPI_NEW_SERVERS_PER_HOUR: ['0', 'newServersPerHour', 0],
  CNAPI_MAX_AGENTS: ['1000', 'maxAgents', 1000],
  CNAPI_DATABASE_POOLER: ['transaction', 'databasePooler', 'transaction'],
  CNAPI_DATABASE_DIRECT_URL: ['postgres://10.0.0.7/cnapi', 'databaseDirectUrl', 'postgres://10.0.0.7/cnapi'],
  CNAPI_DATABASE_POOL_SIZE: ['20', 'databasePoolSize', 20],
  CNAPI_REDIS_URL: ['redis://r', 'redisUrl', 'redis://r'],
  CNAPI_AMQP_URL: ['amqp://a', 'amqpUrl', 'amqp://a'],
  CNAPI_UR_AGENT: [
    '{"key": "/etc/release.pub", "options": {"dns": "10.0.0.2:53", "tls": true}}',
    'urAgent',
    { key: '/etc/release.pub', options: { dns: '10.0.0.2:53', tls: true }, directory: '/opt/cn-agent' },
  ],
  CNAPI_LOG_LEVEL: ['debug', 'logLevel', 'debug'],
};

t.test('the SAPI template renders to a valid configuration, with the least and the most metadata', async (t) => {
  const least = parseConfig(JSON.parse(render('cnapi', metadata)));
  t.match(least, { cnapiUuid: metadata.auto.ZONENAME, host: '127.0.0.1', port: 8080, access: 'open' });
  t.equal(least.databaseUrl, metadata.CNAPI_DATABASE_URL);
  t.equal(least.redisUrl, undefined);
  const values = Object.entries(settable).map(([name, [value]]) => [name, value]);
  const most = parseConfig(JSON.parse(render('cnapi', { ...metadata, ...Object.fromEntries(values) })));
  for (const [name, [, key, parsed]] of Object.entries(settable))
    t.match({ [key]: most[key as keyof Config] }, { [key]: parsed }, name);
  const named = [...read('sapi_manifests/cnapi/template').matchAll(/\{\{#(\w+)\}\}|\{\{\{(\w+)\}\}\}/g)].map(
    ([, one, two]) => one ?? two,
  );
  const known = [...Object.keys(settable), ...Object.keys(metadata)];
  t.same(
    named.filter((name) => !known.includes(name ?? '')),
    [],
    'every key of the template is covered here',
  );
});

t.test('the SAPI templates have each key of the configuration, and each option of the agent', (t) => {
  const has = (service: string, key: string) => read(`sapi_manifests/${service}/template`).includes(`"${key}": `);
  // The times fit each other; whoever changes them writes a file of their own.
  const keys = configKeys().filter(({ key }) => !key.endsWith('Ms'));
  t.same(
    keys.filter(({ key }) => !has('cnapi', key)).map(({ key }) => key),
    [],
  );
  // The first two belong to one machine, the others to a command line.
  const { data: _data, uuid: _uuid, config: _config, help: _help, ...options } = agentOptions;
  const names = Object.keys(options).map((name) => name.replace(/-(.)/g, (_, letter) => letter.toUpperCase()));
  t.ok(names.length > 25);
  t.same(
    names.filter((name) => !has('cn-agent', name)),
    [],
  );
  t.end();
});

t.test('an instance starts from the rendered configuration', async (t) => {
  const { url } = await freshDatabase(t);
  const folder = await mkdtemp(path.join(tmpdir(), 'rendered-'));
  const file = path.join(folder, 'config.json');
  const view = { ...metadata, CNAPI_DATABASE_URL: url, CNAPI_PORT: '0', CNAPI_ACCESS: 'tokens' };
  await writeFile(file, render('cnapi', view), { mode: 0o600 });
  const child = spawn(process.execPath, [path.join(root, 'server.ts'), '--config', file], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {},
  });
  const ended = once(child, 'exit');
  t.teardown(() => rm(folder, { recursive: true }));
  t.teardown(() => child.kill('SIGKILL'));
  const lines = createInterface({ input: child.stdout });
  for await (const line of lines) {
    const record = JSON.parse(line);
    if (record.msg !== 'instance: ready') continue;
    t.equal(record.cnapi_uuid, metadata.auto.ZONENAME);
    t.equal((await fetch(`${record.url}/ping`)).status, 200);
    t.equal((await fetch(`${record.url}/servers`)).status, 401, 'with the configured access');
    child.kill('SIGTERM');
  }
  t.same(await ended, [0, null]);
});

t.test('the SAPI template of the agent renders to valid options', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'rendered-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const file = path.join(folder, 'cn-agent.json');
  const options = async (more: Record<string, string>) => {
    await writeFile(file, render('cn-agent', { ...metadata, ...more }));
    return parseAgentOptions(['--config', file, '--data', 'd']);
  };
  t.match(await options({ CNAPI_DNS: '10.0.0.2:53' }), {
    discovery: { dns: '10.0.0.2:53', datacenter: 'us-east-1', domain: 'example.com' },
    credentials: { tls: false },
  });
  const tls = { CN_AGENT_TLS: 'true', CN_AGENT_CA_FILE: '/ca', CN_AGENT_TLS_NAME: 'n', CN_AGENT_TOKEN_FILE: '/t' };
  const http = {
    CN_AGENT_HTTP_PORT: '5309',
    CN_AGENT_HTTP_HOST: '10.0.0.7',
    CN_AGENT_HTTP_FROM: '10.0.0.0/24,10.1.0.9',
    CN_AGENT_LOG_LEVEL: 'debug',
    CN_AGENT_PUSH_COMMANDS: '/l',
    CN_AGENT_PACKAGE_KEY: '/k,/n',
    CN_AGENT_PACKAGE_URL: 'https://packages.example.com/',
  };
  matchLists(t, await options({ ...tls, ...http }), {
    discovery: { dns: undefined, datacenter: 'us-east-1' },
    credentials: { tls: true, caFile: '/ca', tlsName: 'n', tokenFile: '/t' },
    http: { host: '10.0.0.7', port: 5309, from: ['10.0.0.0/24', '10.1.0.9'], open: false },
    logLevel: 'debug',
    pushCommands: '/l',
    packages: { keyFiles: ['/k', '/n'], urls: ['https://packages.example.com/'], directories: [], allowScripts: false },
  });
  const machine = await options({
    ...{ CNAPI_DNS: '10.0.0.2:53', CN_AGENT_ALLOW_REBOOT: 'true', CN_AGENT_ALLOW_SETUP: 'true' },
    ...{ CN_AGENT_FACTORY_RESET: '/sbin/reset', CN_AGENT_NEEDS_SETUP: 'true', CN_AGENT_ENCRYPTED_ZPOOL: 'true' },
    ...{ CN_AGENT_HEADNODE: 'true', CN_AGENT_BOOT_PARAMETER: 'rack=7,row=2', CN_AGENT_PROTOCOL: 'link' },
    ...{ CN_AGENT_CONTAINERS: 'true', CN_AGENT_CONTAINER_PATH: '/srv/a,/srv/b', CN_AGENT_CONTAINER_BRIDGE: 'br0' },
    ...{ CN_AGENT_CONTAINER_UIDS: '300000-400000', CN_AGENT_IMAGE_URL: 'https://i.example.com/' },
    ...{ CN_AGENT_IMAGE_PATH: '/srv/images', CN_AGENT_IMAGE_SPACE: '1000000', CN_AGENT_ZFS: 'tank/vms' },
    ...{ CN_AGENT_PACKAGE_KEY: '/k', CN_AGENT_PACKAGE_PATH: '/p', CN_AGENT_PACKAGE_SCRIPTS: 'true' },
    ...{ CN_AGENT_PACKAGE_TRIAL: '60', CN_AGENT_HTTP_PORT: '1', CN_AGENT_HTTP_OPEN: 'true' },
  });
  matchLists(t, machine, {
    ...{ allowReboot: true, setupRules: { allowsSetup: true, resetProgram: '/sbin/reset' }, needsSetup: true },
    ...{ encryptedZpool: true, bootParameters: { rack: '7', row: '2', headnode: 'true' }, protocol: 'link' },
    containers: {
      ...{ directories: ['/srv/a', '/srv/b'], bridges: ['br0'], uidRange: { first: 300_000, count: 100_001 } },
      images: { urls: ['https://i.example.com/'], directories: ['/srv/images'], maxBytes: 1_000_000 },
    },
    packages: { keyFiles: ['/k'], urls: [], directories: ['/p'], allowScripts: true },
    ...{ trialMs: 60_000, zfs: ['tank/vms'], http: { port: 1, open: true } },
  });
  matchLists(t, await options({ CNAPI_URL: 'https://10.0.0.5,https://10.0.0.6' }), {
    discovery: { endpoints: [{ host: '10.0.0.5' }, { host: '10.0.0.6' }] },
  });
  t.match(
    parseAgentOptions(['--config', file, '--data', 'd', '--log-level', 'warn']),
    { logLevel: 'warn' },
    'the command line takes precedence',
  );
  for (const [content, message] of [
    ['[]', /not a JSON object/],
    ['{"tls-name": "n"}', /unknown key tls-name/],
    ['{"tlsNam": "n"}', /unknown key tlsNam/],
    ['{"tls": "yes"}', /tls is not true or false/],
    ['{"__proto__": {"dns": "h:1"}, "ca": 1.5}', /unknown key __proto__/],
  ] as const) {
    await writeFile(file, content);
    t.throws(() => parseAgentOptions(['--config', file]), { name: 'AgentUsageError', message }, content);
  }
});

t.test('the SAPI manifests name their service, its configuration file and its restart command', async (t) => {
  for (const name of readdirSync(path.join(root, 'sapi_manifests'))) {
    const manifest = JSON.parse(read(`sapi_manifests/${name}/manifest.json`));
    t.match(manifest, { name, post_cmd: new RegExp(`(^|; )/usr/sbin/svcadm restart ${name}$`) });
    t.ok(read(`smf/manifests/${name}.xml`).includes(`value="${manifest.path}"`), name);
  }
});

t.test("the file with the database password is readable by the instance's group only", async (t) => {
  const { path: file, post_cmd } = JSON.parse(read('sapi_manifests/cnapi/manifest.json'));
  const group = /<method_credential user="\w+" group="(\w+)"/.exec(read('smf/manifests/cnapi.xml'))?.[1];
  const [owned, moded, restarted] = post_cmd.split('; ');
  t.same([owned, moded], [`/usr/bin/chgrp ${group} ${file}`, `/usr/bin/chmod 640 ${file}`]);
  t.match(restarted, /svcadm restart/, 'before the instance reads it');
});

t.test('the SMF manifests are well-formed, start existing programs and allow time to stop', async (t) => {
  for (const name of readdirSync(path.join(root, 'smf/manifests'))) {
    const xml = read(`smf/manifests/${name}`);
    t.strictSame(malformations(xml), [], name);
    const program = /\/opt\/smartdc\/cnapi\/(\S+\.ts)/.exec(xml)?.[1] ?? '';
    t.ok(existsSync(path.join(root, program)), program);
    t.ok(Number(/name="stop" timeout_seconds="(\d+)"/.exec(xml)?.[1]) >= longestDrainSeconds, name);
    t.match(xml, 'exec=":kill"', 'stop sends SIGTERM, the default of SMF');
    t.match(xml, 'name="duration" type="astring" value="child"', 'it is restarted however it ends');
  }
  t.not(malformations('<a><b></a>').length, 0, 'the check can fail');
  t.not(malformations('<a b=c/>').length, 0);
});

t.test('the systemd units start existing programs and allow time to stop', async (t) => {
  for (const name of readdirSync(path.join(root, 'deploy/systemd'))) {
    const unit = read(`deploy/systemd/${name}`);
    const program = /\/opt\/cnapi\/(\S+\.ts)/.exec(unit)?.[1] ?? '';
    t.ok(existsSync(path.join(root, program)), program);
    const isDrained = program !== 'lib/name-server/main.ts';
    t.ok(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1]) >= (isDrained ? longestDrainSeconds : 10), name);
    t.match(unit, /^Restart=always$/m, 'it is restarted however it ends, also after a drain over REST');
    t.match(unit, /^StartLimitIntervalSec=0$/m, 'without a limit of attempts');
    t.match(/^KillSignal=(\w+)$/m.exec(unit)?.[1] ?? 'SIGTERM', 'SIGTERM', 'the default of systemd');
  }
});

t.test("systemd-analyze finds no error in the units and rates the instance's as hardened", async (t) => {
  const found = spawnSync('systemd-analyze', ['--version']);
  if (found.error) {
    t.comment('systemd-analyze is not installed');
    return;
  }
  for (const name of readdirSync(path.join(root, 'deploy/systemd'))) {
    const { stdout, stderr } = spawnSync('systemd-analyze', ['verify', path.join(root, 'deploy/systemd', name)], {
      encoding: 'utf8',
    });
    // Where Node is, and whether the manual exists, depends on the machine.
    const complaints = `${stdout}${stderr}`
      .split('\n')
      .filter((line) => line.includes(name.replace(/@?\.service/, '')));
    t.same(
      complaints.filter((line) => !/is not executable|man page/.test(line)),
      [],
      name,
    );
  }
  for (const name of ['cnapi@.service', 'cnapi-name-server.service']) {
    const unit = path.join(root, 'deploy/systemd', name);
    const { status, stderr } = spawnSync('systemd-analyze', ['security', '--offline=true', '--threshold=20', unit], {
      encoding: 'utf8',
    });
    t.equal(status, 0, `${name}: exposure of at most 2.0 ${stderr}`);
  }
});

/** All files of the project that this one imports, directly or not. */
function partsOf(file: string, found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  for (const [, name = ''] of read(file).matchAll(/(?:from|import\() ?'(\.{1,2}\/[^']+)'/g))
    partsOf(path.join(path.dirname(file), name), found);
  return found;
}

/** The packages that these files import and that the image does not install. */
function packagesNotInstalled(parts: readonly string[]): string[] {
  const { dependencies } = JSON.parse(read('package.json')) as { dependencies: Record<string, string> };
  const named = parts.flatMap((file) => [
    ...read(file).matchAll(/^(?:import|\}) (?!type ).*?from '([a-z@][^':]*)';$/gm),
  ]);
  return named.map(([, name = '']) => name).filter((name) => !(name in dependencies));
}

t.test('the image contains every file and package of the programs that run in it', async (t) => {
  const copies = [...read('deploy/container/Containerfile').matchAll(/^COPY (?!--from)(.+) \S+$/gm)];
  const copied = copies.flatMap(([, names = '']) => names.split(' '));
  const has = (file: string) => copied.some((name) => file === name || file.startsWith(`${name}/`));
  for (const program of ['server.ts', 'lib/name-server/main.ts', 'deploy/container/health.ts', 'lib/cli/main.ts']) {
    const parts = [...partsOf(program)];
    t.ok(parts.length > 2, `the imports of ${program} are followed`);
    t.same(packagesNotInstalled(parts), [], `${program}: its packages`);
    t.same(
      parts.filter((file) => !has(file)),
      [],
      program,
    );
  }
});

t.test('the name server starts from the example configuration in its unit', async (t) => {
  const { url } = await freshDatabase(t);
  const folder = await mkdtemp(path.join(tmpdir(), 'name-server-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const example = /^# {3}(\{.*\})$/m.exec(read('deploy/systemd/cnapi-name-server.service'))?.[1] ?? '';
  const file = path.join(folder, 'name-server.json');
  await writeFile(file, JSON.stringify({ ...JSON.parse(example), databaseUrl: url, host: '127.0.0.1', port: 0 }));
  const child = spawn(process.execPath, [path.join(root, 'lib/name-server/main.ts'), '--config', file], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {},
  });
  const ended = once(child, 'exit');
  t.teardown(() => child.kill('SIGKILL'));
  for await (const line of createInterface({ input: child.stdout })) {
    if (JSON.parse(line).msg === 'dns: name server listening') child.kill('SIGTERM');
  }
  t.same(await ended, [0, null]);
});
