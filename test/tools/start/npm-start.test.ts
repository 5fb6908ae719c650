/**
 * All of `npm start`: real Postgres, instances, name server and agents, on ports and in a directory
 * of the test's own.
 */
import { Resolver } from 'node:dns/promises';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import t, { type Test } from 'tap';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { type Ending, endInOrder } from '../../../tools/start/end-processes.ts';
import { isReachableBy, projectRoot } from '../../../tools/start/place.ts';
import { isTcpFree } from '../../../tools/start/ports.ts';
import { giveFormerSchema } from '../../support/former-schema.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import {
  authorizationOf,
  cnapi,
  configHome,
  dataDirectory,
  freePorts,
  processesOf,
  Start,
  untilGone,
} from './support.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const statusesAt = async (url: string, headers: Record<string, string>) =>
  ((await (await fetch(`${url}/servers`, { headers })).json()) as { status: string }[]).map(({ status }) => status);

t.test('npm start comes up, restarts what dies, refuses a second start and stops completely', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(3);
  const options = ['--data', data, '--port', String(port), '--instances', '2', '--agents', '3'];
  const first = new Start(t, options);
  const ready = await first.ready();
  const headers = authorizationOf(ready);
  const statusesWhenReady = await statusesAt(ready.instances[1]?.url ?? '', headers);

  await t.test('the ready line names every process and address', async (t) => {
    t.equal(ready.pid, first.child.pid);
    t.strictSame(
      ready.instances.map(({ url }) => url),
      [`http://127.0.0.1:${port}`, `http://127.0.0.1:${port + 1}`],
    );
    t.equal(ready.dns, `127.0.0.1:${port + 2}`);
    for (const { url, pid } of ready.instances) {
      t.equal((await fetch(`${url}/ready`)).status, 200);
      t.ok(process.kill(pid, 0));
    }
    t.ok(process.kill(ready.agent?.pid ?? 0, 0));
  });

  await t.test('the name server names both instances', async (t) => {
    const resolver = new Resolver({ timeout: 2000 });
    resolver.setServers([ready.dns]);
    const records = await resolver.resolveSrv('_http._tcp.cnapi.local.cnapi.internal');
    t.strictSame(records.map((record) => record.port).sort(), [port, port + 1]);
    t.strictSame(await resolver.resolve4('cnapi.local.cnapi.internal'), ['127.0.0.1', '127.0.0.1'].slice(0, 2));
  });

  await t.test('this machine and the simulated servers are running', async (t) => {
    const url = ready.instances[1]?.url ?? '';
    t.strictSame(statusesWhenReady, Array(4).fill('running'), 'when the ready line is printed');
    const server = (await (await fetch(`${url}/servers/${ready.agent?.server_uuid}`, { headers })).json()) as {
      status: string;
    };
    t.equal(server.status, 'running');
  });

  await t.test('without the token, every instance answers 401', async (t) => {
    for (const { url } of ready.instances) {
      t.equal((await fetch(`${url}/servers`)).status, 401);
      const body = JSON.stringify({ script: 'id' });
      const options = { method: 'POST', headers: { 'content-type': 'application/json' }, body };
      t.equal((await fetch(`${url}/servers/${ready.agent?.server_uuid}/execute`, options)).status, 401);
    }
  });

  await t.test('the CLI of the same user finds the token and sends it to no other address', async (t) => {
    const url = ready.instances[1]?.url ?? '';
    const listed = await cnapi(['--url', url, 'servers', '--json']);
    t.equal(listed.code, 0, listed.stderr);
    const ran = await cnapi(['--url', url, 'exec', ready.agent?.server_uuid ?? '', '--', 'echo', 'done']);
    t.match(ran, { code: 0, stdout: /done/ });
    const header = await cnapi(['--url', url, 'token', 'header']);
    t.equal(header.stdout, `Authorization: ${headers.authorization}\n`);
    t.match(await cnapi(['instances']), { code: 0, stdout: new RegExp(`127.0.0.1:${port}`) }, 'without --url');
    const admin = await cnapi(['token', 'create', 'tour', '--role', 'admin', '--local']);
    t.match(admin, { code: 0, stdout: /^cnapi_\S+\n$/ }, 'its configuration is found too, wherever its data is');
    t.match(await cnapi(['audit', '--limit', '1'], { CNAPI_TOKEN: admin.stdout.trim() }), { code: 0 });
    const elsewhere = await cnapi(['--url', `http://127.0.0.1:${port + 5}`, 'token', 'header']);
    t.match(elsewhere, { code: 2, stderr: /There is no token/ });
    const other = await cnapi(['--url', url, 'servers'], { XDG_CONFIG_HOME: '/nonexistent' });
    t.match(other, { code: 1, stderr: /Unauthorized[\s\S]*only the user who runs npm start/ });
  });

  await t.test('secrets are readable by their owner only, and logs are in DATA/log', async (t) => {
    for (const name of readdirSync(path.join(data, 'config'))) {
      t.equal(statSync(path.join(data, 'config', name)).mode & 0o077, 0, name);
    }
    t.equal(ready.token_file, path.join(data, 'config', 'operator.token'));
    t.equal(statSync(ready.token_file ?? '').mode & 0o777, 0o600);
    const line = readFileSync(path.join(data, 'log', `instance-${port}.log`), 'utf8').split('\n')[0] ?? '';
    t.match(JSON.parse(line), { name: 'cnapi', v: 0 });
  });

  await t.test('a second start is refused with the pid and the URLs', async (t) => {
    const { code, stderr } = await new Start(t, options).ended;
    t.equal(code, 3);
    t.match(stderr, `pid ${ready.pid}, http://127.0.0.1:${port} http://127.0.0.1:${port + 1}`);
    t.notMatch(stderr, /\.ts:\d+/, 'no stack trace');
  });

  await t.test('an instance that dies is restarted on its port', async (t) => {
    const [instance] = ready.instances;
    process.kill(instance?.pid ?? 0, 'SIGKILL');
    const again = await until(() => {
      const found = processesOf(data).find(({ name }) => name === `instance-${port}`);
      return found?.pid !== instance?.pid && found;
    }, 'another process');
    await until(
      async () => (await fetch(`${instance?.url}/ready`).catch(() => undefined))?.status === 200,
      'it to be ready',
    );
    t.not(again.pid, instance?.pid);
    t.match(first.stderr, `instance-${port} (pid ${instance?.pid}) ended with SIGKILL`);
    await until(() => first.stderr.includes(`instance-${port} is ready again after `), 'the report of its return');
  });

  await t.test('after two signals at once it stops in order, exits 0 and leaves nothing', async (t) => {
    const processes = processesOf(data);
    t.ok(processes.length >= 6, `${processes.length} processes`);
    const began = Date.now();
    first.child.kill('SIGINT');
    first.child.kill('SIGINT');
    const { code } = await first.ended;
    t.equal(code, 0);
    t.comment(`it took ${Date.now() - began} ms`);
    t.strictSame(await untilGone(processes, 0), []);
    for (const each of [port, port + 1, port + 2]) t.ok(await isTcpFree(each));
    t.strictSame(readdirSync(path.join(configHome, 'cnapi', 'local')), [], 'the local announcement is withdrawn');
  });

  await t.test('after a restart the identities and data are the same, and --stop ends it', async (t) => {
    const second = new Start(t, options);
    const again = await second.ready();
    t.strictSame(
      again.instances.map(({ uuid }) => uuid),
      ready.instances.map(({ uuid }) => uuid),
    );
    t.equal(again.agent?.server_uuid, ready.agent?.server_uuid);
    t.strictSame(authorizationOf(again), headers, 'the same token');
    const uuids = (await (await fetch(`${again.instances[0]?.url}/servers`, { headers })).json()) as unknown[];
    t.equal(uuids.length, 4, 'the same simulated servers');
    const stop = await new Start(t, ['--stop', '--data', data]).ended;
    t.strictSame([stop.code, stop.stderr], [0, `cnapi: stopped (pid ${again.pid})\n`]);
    t.equal((await second.ended).code, 0);
    const none = await new Start(t, ['--stop', '--data', data]).ended;
    t.strictSame([none.code, none.stderr], [0, `cnapi: nothing is running in ${data}\n`]);
  });
});

t.test('after kill -9 of the supervisor everything ends by itself, and the next start works', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(2);
  const options = ['--data', data, '--port', String(port), '--instances', '1', '--agents', '1'];
  const killed = new Start(t, options);
  await killed.ready();
  const processes = processesOf(data);
  t.ok(processes.some(({ name }) => name === 'postgres'));
  killed.child.kill('SIGKILL');
  await killed.ended;
  t.strictSame(await untilGone(processes, 10_000), []);
  const next = new Start(t, options);
  await next.ready();
  next.child.kill('SIGTERM');
  t.equal((await next.ended).code, 0);
});

t.test('--stop and the next start end what a killed supervisor and watchdog left behind', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(2);
  const options = ['--data', data, '--port', String(port), '--instances', '1', '--agents', '0', '--no-agent'];
  const first = await killedWithWatchdog(t, data, options);
  const scale = await new Start(t, ['--scale', '2', '--data', data]).ended;
  t.match(scale, { code: 1, stderr: /the supervisor in .* is gone, but .* still runs: .*postgres.* --stop --data=/ });
  const stop = await new Start(t, ['--stop', '--data', data]).ended;
  t.match(stop, { code: 0, stderr: /ending what an earlier run left behind: .*postgres.*\ncnapi: stopped\n$/ });
  t.strictSame(await untilGone(first, 0), []);
  const again = await new Start(t, ['--stop', '--data', data]).ended;
  t.match(again, { code: 0, stderr: `nothing is running in ${data}` });
  const processes = await killedWithWatchdog(t, data, options);
  const next = new Start(t, options);
  await next.ready();
  t.match(next.stderr, /ending what an earlier run left behind: .*postgres/);
  t.strictSame(await untilGone(processes, 0), []);
  next.child.kill('SIGTERM');
  t.equal((await next.ended).code, 0);
});

/** Starts it and kills the supervisor and its watchdog. Returns the processes that are left. */
async function killedWithWatchdog(t: Test, data: string, options: readonly string[]): Promise<Ending[]> {
  const killed = new Start(t, options);
  await killed.ready();
  const processes = processesOf(data);
  process.kill(killed.child.pid ?? 0, 'SIGSTOP');
  const watchdogs = childrenOf(killed.child.pid ?? 0).filter((pid) =>
    readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('watchdog.ts'),
  );
  t.equal(watchdogs.length, 1, 'one watchdog');
  for (const pid of watchdogs) process.kill(pid, 'SIGKILL');
  killed.child.kill('SIGKILL');
  await killed.ended;
  const names = processes.map(({ name }) => name);
  t.strictSame(await untilGone(processes, 500), names, 'nothing has ended them');
  t.teardown(() => endInOrder(processes, systemClock));
  return processes;
}

t.test('it stops in time although an instance and the database are frozen', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(2);
  const options = ['--data', data, '--port', String(port), '--instances', '1', '--agents', '0', '--no-agent'];
  const start = new Start(t, options);
  const ready = await start.ready();
  const processes = processesOf(data);
  const postgres = processes.find(({ name }) => name === 'postgres')?.pid ?? 0;
  const frozen = [postgres, ...childrenOf(postgres), ready.instances[0]?.pid ?? 0];
  for (const pid of frozen) process.kill(pid, 'SIGSTOP');
  const began = Date.now();
  start.child.kill('SIGTERM');
  t.equal((await start.ended).code, 0);
  t.comment(`it took ${Date.now() - began} ms`);
  await until(() => frozen.every((pid) => !existsSync(`/proc/${pid}`)), 'the frozen processes to end');
  t.strictSame(await untilGone(processes, 0), []);
});

t.test('an unusable --database-url or --redis-url is named without its password', async (t) => {
  const port = await freePorts(2);
  const rows: [string, string][] = [
    ['--database-url', 'postgres://me:secret@127.0.0.1:1/d'],
    ['--redis-url', 'redis://:secret@127.0.0.1:1'],
  ];
  for (const [option, url] of rows) {
    const { code, stderr } = await new Start(t, ['--data', dataDirectory(t), '--port', String(port), option, url])
      .ended;
    t.equal(code, 1);
    t.match(stderr, new RegExp(`${option} .*127\\.0\\.0\\.1:1.*cannot be used: .*ECONNREFUSED`));
    t.notMatch(stderr, /secret/);
  }
});

t.test('a database of a development version is refused, with the command that starts another one', async (t) => {
  const { url, database } = await freshDatabase(t);
  await giveFormerSchema(database);
  const port = await freePorts(2);
  const options = ['--data', dataDirectory(t), '--port', String(port), '--database-url', url];
  const { code, stderr } = await new Start(t, options).ended;
  t.equal(code, 1);
  t.match(stderr, /the database has tables of a development version .*`npm start -- --data FOLDER`/);
  t.notMatch(stderr, /^ {4}at /m, 'there is no stack');
});

t.test('a token unknown to the database is replaced, and --open needs none', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(2);
  const options = ['--data', data, '--port', String(port), '--instances', '1', '--agents', '1', '--no-agent'];
  const closed = new Start(t, options);
  const { token_file = '', instances } = await closed.ready();
  const url = instances[0]?.url;
  const former = readFileSync(token_file, 'utf8');
  closed.child.kill('SIGTERM');
  await closed.ended;
  writeFileSync(
    token_file,
    former.replace(/.$/m, (last) => (last === 'A' ? 'B' : 'A')),
  );
  const again = new Start(t, options);
  const headers = authorizationOf(await again.ready());
  t.not(readFileSync(token_file, 'utf8'), former);
  t.equal((await fetch(`${url}/servers`, { headers })).status, 200);
  again.child.kill('SIGTERM');
  await again.ended;
  const open = new Start(t, [...options, '--open']);
  t.equal((await open.ready()).token_file, undefined);
  const running = await until(
    async () => (await statusesAt(url ?? '', {})).includes('running'),
    'its agent to be running',
  );
  t.ok(running);
  t.equal((await cnapi(['--url', url ?? '', 'servers'])).code, 0);
  open.child.kill('SIGTERM');
  t.equal((await open.ended).code, 0);
});

t.test('without Redis on the PATH the database carries the bus, with a message', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(2);
  const options = ['--data', data, '--port', String(port), '--instances', '1', '--agents', '0', '--no-agent'];
  const start = new Start(t, options, { ...process.env, PATH: '/nonexistent', XDG_CONFIG_HOME: configHome });
  const ready = await start.ready();
  t.equal(ready.bus, 'postgres');
  t.equal(ready.agent, undefined);
  t.match(start.stderr, /no redis-server or valkey-server on the PATH: the bus is Postgres LISTEN\/NOTIFY/);
  start.child.kill('SIGTERM');
  t.equal((await start.ended).code, 0);
});

t.test('a signal during the start stops it', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(2);
  const start = new Start(t, ['--data', data, '--port', String(port), '--instances', '1', '--agents', '0']);
  await until(() => start.stderr.includes('creating the database'), 'the start to begin');
  start.child.kill('SIGTERM');
  const { code, stdout } = await start.ended;
  t.strictSame([code, stdout], [0, '']);
  t.strictSame(processesOf(data), []);
});

t.test('a port in use is refused before anything is started', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(2);
  const server = createServer().listen(port + 1, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  t.teardown(() => server.close());
  const { code, stdout, stderr } = await new Start(t, ['--data', data, '--port', String(port), '--instances', '1'])
    .ended;
  t.equal(code, 1);
  t.equal(stdout, '');
  t.match(stderr, new RegExp(`port ${port + 1} is taken.*--port`));
  t.notOk(existsSync(data), 'no directory is left behind');
});

const isRoot = process.getuid?.() === 0;
const cannotBeAnother = isRoot && !isReachableBy({}, projectRoot) && 'another user cannot reach the checkout';

t.test('what another user runs can be stopped and scaled by that user only', { skip: cannotBeAnother }, async (t) => {
  const data = dataDirectory(t);
  mkdirSync(data);
  chmodSync(data, isRoot ? 0o700 : 0);
  for (const flags of [['--stop'], ['--scale', '2']]) {
    const user = isRoot ? { uid: 65_534, gid: 65_534 } : {};
    const { code, stderr } = await new Start(t, [...flags, '--data', data], undefined, user).ended;
    t.equal(code, 1);
    t.match(stderr, `cnapi: ${data} belongs to another user; repeat the command as that user\n`, flags.join(' '));
  }
});

t.test('wrong usage is refused with a reference to --help', async (t) => {
  const wrong = await new Start(t, ['--frobnicate']).ended;
  t.equal(wrong.code, 2);
  t.match(wrong.stderr, /--frobnicate.*--help/);
});

function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
}
