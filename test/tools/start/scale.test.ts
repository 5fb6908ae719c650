/**
 * Scaling and restarting the instances of a whole `npm start`, with real instances, agents and
 * names.
 */
import { Resolver } from 'node:dns/promises';
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { authorizationOf, cnapi, dataDirectory, freePorts, processesOf, Start, untilGone } from './support.ts';

t.setTimeout(FILE_TIMEOUT_MS);

interface Instance {
  uuid: string;
  url: string;
  pid: number;
  state: string;
  agents: number;
}

let headers: Record<string, string> = {};

const liveAt = async (url: string) =>
  ((await (await fetch(`${url}/instances`, { headers })).json()) as Instance[]).filter(({ state }) => state === 'live');

const isReady = async (url: string) => (await fetch(`${url}/ready`).catch(() => undefined))?.status === 200;

/** All statuses that the server has had since it was first seen. */
const statusesEver = async (url: string, uuid = '') => {
  const changes = (await (await fetch(`${url}/servers/${uuid}/status-history`, { headers })).json()) as {
    status: string;
  }[];
  return [...new Set(changes.map(({ status }) => status))];
};

async function portsNamedBy(dns: string): Promise<number[]> {
  const resolver = new Resolver({ timeout: 2000 });
  resolver.setServers([dns]);
  return (await resolver.resolveSrv('_http._tcp.cnapi.local.cnapi.internal')).map(({ port }) => port).sort();
}

t.test('npm start scales and restarts its instances while everything else continues', async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(6);
  const options = ['--data', data, '--port', String(port), '--instances', '2', '--agents', '5'];
  const start = new Start(t, options);
  const ready = await start.ready();
  const { instances, dns, agent } = ready;
  headers = authorizationOf(ready);
  const [first, second] = instances.map(({ url }) => url) as [string, string];
  const ask = (...args: string[]) => new Start(t, [...args, '--data', data]).ended;
  const others = () =>
    processesOf(data)
      .filter(({ name }) => !name.startsWith('instance-'))
      .map(({ pid }) => pid);
  const rest = others();

  const back = async (url: string, pid: number) => {
    await until(() => start.stderr.includes(`(pid ${pid}) left in order; starting it again`), 'it to leave');
    return until(
      async () => (await isReady(url)) && (await liveAt(url)).find((one) => one.url === url && one.pid !== pid),
      'it to return',
    );
  };

  await t.test('an instance that gets SIGTERM is restarted on its port and with its uuid', async (t) => {
    const { pid = 0, uuid } = instances[1] ?? {};
    process.kill(pid, 'SIGTERM');
    t.equal((await back(second, pid)).uuid, uuid);
  });

  await t.test('an instance that is drained over REST is restarted', async (t) => {
    const { pid = 0, uuid } = instances[0] ?? {};
    t.equal((await fetch(`${second}/instances/${uuid}/drain`, { method: 'POST', headers })).status, 202);
    t.equal((await back(first, pid)).uuid, uuid);
  });

  await t.test('after scaling up, all instances serve and the name server names them', async (t) => {
    const { code, stderr } = await ask('--scale', '4');
    t.equal(code, 0, stderr);
    const ports = [port, port + 1, port + 3, port + 4];
    t.match(stderr, `4 instances serving: ${ports.map((each) => `http://127.0.0.1:${each}`).join(' ')}\n`);
    t.strictSame(await portsNamedBy(dns), ports);
    for (const each of ports) t.ok(await isReady(`http://127.0.0.1:${each}`));
    t.equal(
      (await cnapi(['--url', `http://127.0.0.1:${port + 4}`, 'servers'])).code,
      0,
      'cnapi has the token for new instances',
    );
    const live = await liveAt(first);
    t.equal(new Set(live.map(({ uuid }) => uuid)).size, 4);
    t.match(start.stderr, `starting instance-${port + 3}, instance-${port + 4}`, 'the supervisor reports it too');
    const refused = await new Start(t, options).ended;
    t.match(refused.stderr, `http://127.0.0.1:${port + 4} (`, 'a second start names them too');
  });

  await t.test('a rolling restart replaces every process, and the server stays running throughout', async (t) => {
    const before = await liveAt(first);
    const { code, stderr } = await ask('--rolling-restart');
    t.equal(code, 0, stderr);
    const after = await liveAt(first);
    const uuids = (rows: Instance[]) => rows.map(({ uuid }) => uuid).sort();
    t.strictSame(uuids(after), uuids(before));
    t.equal(new Set([...before, ...after].map(({ pid }) => pid)).size, 8);
    t.strictSame(await statusesEver(first, agent?.server_uuid), ['running']);
  });

  await t.test('scaling down removes the last instances, and their agents move to those that stay', async (t) => {
    const leaving = processesOf(data).filter(({ name }) => /^instance-/.test(name) && name !== `instance-${port}`);
    const { code, stderr } = await ask('--scale', '1');
    t.equal(code, 0, stderr);
    t.match(stderr, `one instance serving: ${first}\n`);
    t.strictSame(await untilGone(leaving, 0), []);
    t.strictSame(await portsNamedBy(dns), [port]);
    await until(async () => (await liveAt(first))[0]?.agents === 6, 'all six agents at the instance that stays');
    t.equal(processesOf(data).filter(({ name }) => /^instance-/.test(name)).length, 1);
  });

  await t.test('with another data directory, the command for the one that runs is named', async (t) => {
    const other = dataDirectory(t);
    const { code, stderr } = await new Start(t, ['--scale', '3', '--data', other]).ended;
    t.equal(code, 1);
    t.match(stderr, `nothing is running in ${other}; npm start -- --scale 3 --data=`);
    t.match(stderr, ` is for the one that runs in ${data}; npm start -- --instances 3 --data=`);
    const stop = await new Start(t, ['--stop', '--data', other]).ended;
    const named = `npm start -- --stop --data=${data} is for the one that runs in ${data}`;
    t.strictSame([stop.code, stop.stderr], [0, `cnapi: nothing is running in ${other}; ${named}\n`]);
  });

  await t.test('an operation is refused while another one is running', async (t) => {
    t.equal((await ask('--scale', '2')).code, 0);
    const isSecond = ({ name }: { name: string }) => /^instance-/.test(name) && name !== `instance-${port}`;
    const { pid, name } = await until(() => processesOf(data).find(isSecond), 'the second instance to run');
    // A frozen process cannot leave, so the scaling lasts until the process continues.
    process.kill(pid, 'SIGSTOP');
    const scaling = new Start(t, ['--scale', '1', '--data', data]);
    await until(() => scaling.stderr.includes(`${name} is leaving`), 'the scaling to begin');
    const { code, stderr } = await ask('--rolling-restart');
    t.strictSame([code, stderr], [1, 'cnapi: scaling to 1 is going on; try again when it is done\n']);
    process.kill(pid, 'SIGCONT');
    t.equal((await scaling.ended).code, 0);
  });

  t.strictSame(others(), rest, 'database, bus, name server and agents were not restarted');
  const socket = path.join(data, 'config', 'control.sock');
  t.equal(statSync(socket).mode & 0o777, 0o600);
  const stopped = await ask('--stop');
  t.equal(stopped.code, 0);
  t.equal((await start.ended).code, 0);
  t.notOk(existsSync(socket));
  const nothing = await ask('--scale', '2');
  t.equal(nothing.code, 1);
  t.match(nothing.stderr, `nothing is running in ${data}; npm start -- --instances 2 --data=`);
});

t.test('without a control socket it says so, and everything else works', async (t) => {
  const data = path.join(dataDirectory(t), 'x'.repeat(90));
  const port = await freePorts(2);
  const options = ['--data', data, '--port', String(port), '--instances', '1', '--agents', '0', '--no-agent'];
  const start = new Start(t, options);
  await start.ready();
  t.match(start.stderr, /--scale and --rolling-restart will not work here, with no control socket: /);
  const { code, stderr } = await new Start(t, ['--scale', '2', '--data', data]).ended;
  t.equal(code, 1);
  t.match(stderr, /cannot be asked at .*control\.sock/);
  start.child.kill('SIGTERM');
  t.equal((await start.ended).code, 0);
});
