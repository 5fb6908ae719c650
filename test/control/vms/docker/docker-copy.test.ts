/**
 * `docker-copy` and `docker-stats` for an agent of this project: a real instance, the agent's end
 * of the stream, and a plain TCP client.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import WebSocket from 'ws';
import { Tokens } from '../../../../lib/control/access/tokens.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { CHANNELS, type StreamPlace, streamMessage } from '../../../../lib/protocol/streams/stream.ts';
import { freshZone } from '../../../support/apps.ts';
import { archiveOf } from '../../../support/layer-archive.ts';
import { until } from '../../../support/until.ts';
import { call } from '../../http/support.ts';
import { VmAgent } from '../vm-agent.ts';

interface Copied {
  host: string;
  port: number;
  containerPathStat: Record<string, unknown>;
}

const HEAD = '41ed 4096 1600000000\n\0';
const stdout = (content: string | Buffer) => streamMessage(CHANNELS.stdout, content);
const status = (value: object) => streamMessage(CHANNELS.status, JSON.stringify(value));

async function start(t: Test, config: Record<string, unknown> = {}) {
  const zone = await freshZone(t);
  const app = await zone.startApp(config);
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const uuid: string = randomUUID();
  const vm = { uuid, state: 'running' };
  agent.answer = ({ name }) => (name === 'machine_load' ? { result: vm } : undefined);
  const at = `/servers/${agent.machine.serverUuid}/vms/${uuid}`;

  /** Joins the stream of the next task of this name. */
  const join = async (name = 'vm_exec') => {
    const { params } = await until(() => [...agent.received.values()].find((task) => task.name === name), name);
    agent.received.clear();
    const path = `/agents/${agent.machine.serverUuid}/streams/${(params.stream as StreamPlace).name}`;
    const socket = new WebSocket(`${app.url.replace('http', 'ws')}${path}`);
    const messages: Buffer[] = [];
    socket.on('message', (data) => messages.push(data as Buffer));
    socket.on('error', () => undefined);
    t.teardown(() => socket.terminate());
    await once(socket, 'open');
    return { socket, messages, params };
  };

  /** Asks for a copy, of which the agent says `head` first. */
  const copy = async (params: object, head: string, end?: object) => {
    const asked = app.post<Copied>(`${at}/docker-copy`, params);
    const joined = await join();
    joined.socket.send(stdout(head));
    if (end !== undefined) joined.socket.send(status(end));
    return { ...joined, ...(await asked) };
  };
  const open = async () =>
    Number(/^cnapi_streams_open (\d+)$/m.exec(await (await fetch(`${app.url}/metrics`)).text())?.[1]);
  return { zone, app, agent, uuid, vm, at, join, copy, open };
}

function connectTo(t: Test, { host, port }: Copied) {
  const socket = connect({ host, port });
  const pieces: Buffer[] = [];
  let failure: NodeJS.ErrnoException | undefined;
  let isClosed = false;
  socket.on('data', (bytes) => pieces.push(bytes));
  socket.on('error', (error) => {
    failure = error;
  });
  socket.on('close', () => {
    isClosed = true;
  });
  t.teardown(() => socket.destroy());
  const closed = () => until(() => isClosed, 'the end of the connection');
  return { socket, received: () => Buffer.concat(pieces), closed, failure: () => failure?.code };
}

t.test('a directory is read: what it is in the answer, the archive at the port', async (t) => {
  const { app, uuid, copy, open } = await start(t);
  const { status: code, body, socket, params } = await copy({ path: 'etc/' }, `${HEAD}arch`);
  t.equal(code, 200);
  t.match(params, { uuid, args: { 0: 'sh', 1: '-c', 4: 'read', 5: '/etc' } });
  t.match(body.containerPathStat, { name: 'etc', size: 4096, mode: 2 ** 31 + 0o755, linkTarget: '' });
  const caller = connectTo(t, body);
  socket.send(stdout('ive'));
  socket.send(status({ exit_code: 0 }));
  socket.close();
  await caller.closed();
  t.equal(String(caller.received()), 'archive');
  t.equal(caller.failure(), undefined);
  await until(async () => (await open()) === 0, 'no stream to be left');
  t.match(JSON.stringify((await app.get('/audit?action=DockerCopy')).body), /vm_exec|DockerCopy/);
});

t.test('an archive that breaks off at the agent is a connection that breaks', async (t) => {
  const { copy } = await start(t);
  for (const end of [{ exit_code: 2 }, { error: { code: 'VmNotRunning', message: 'it stopped' } }, undefined]) {
    const { body, socket } = await copy({ path: '/etc' }, HEAD);
    const caller = connectTo(t, body);
    socket.send(stdout('part'));
    await until(() => caller.received().length > 0, 'the archive to begin');
    if (end === undefined) socket.terminate();
    else {
      socket.send(status(end));
      socket.close();
    }
    await caller.closed();
    t.equal(caller.failure(), 'ECONNRESET', JSON.stringify(end));
  }
});

t.test('an archive is written, and the end of the connection says that it arrived', async (t) => {
  const { copy } = await start(t);
  const { body, socket, messages, params } = await copy({ path: '/tmp', mode: 'write', no_overwrite_dir: true }, HEAD);
  t.match(params, { args: { 4: 'write', 5: '/tmp' } });
  t.same(Object.keys(body).sort(), ['host', 'port']);
  const caller = connectTo(t, body);
  const archive = archiveOf([{ path: 'a', contents: 'x'.repeat(100_000) }]);
  caller.socket.end(archive);
  const input = () =>
    Buffer.concat(messages.filter(([channel]) => channel === CHANNELS.stdin).map((one) => one.subarray(1)));
  await until(() => messages.at(-1)?.[0] === CHANNELS.close, 'the end of the input');
  t.same(input(), archive);
  socket.send(status({ exit_code: 0 }));
  socket.close();
  await caller.closed();
  t.equal(caller.failure(), undefined);
});

t.test('a hostile archive, or a part of one, ends the copy without its end', async (t) => {
  const { copy } = await start(t);
  const rows = [archiveOf([{ path: '../x', contents: 'x' }]), archiveOf([{ path: 'a' }]).subarray(0, -1024)];
  for (const archive of rows) {
    const { body, socket, messages } = await copy({ path: '/tmp', mode: 'write' }, HEAD);
    const caller = connectTo(t, body);
    caller.socket.end(archive);
    await until(() => messages.at(-1)?.[0] === CHANNELS.close, 'the end of the input');
    t.match(String(messages.at(-2)), /^\0x{1000}/, 'no program tar takes this for a whole archive');
    socket.send(status({ exit_code: 0 }));
    socket.close();
    await caller.closed();
    t.equal(caller.failure(), 'ECONNRESET', 'whatever the program thinks of it');
  }
});

t.test('the mode stat opens no port, and what is not there is refused', async (t) => {
  const { app, agent, at, vm, copy, open } = await start(t);
  const found = await copy({ payload: { path: '/l', mode: 'stat' } }, 'a1ff 1 0\nx\0', { exit_code: 0 });
  t.match(found, { status: 200, body: { containerPathStat: { name: 'l', mode: 2 ** 27 + 0o777, linkTarget: 'x' } } });
  t.same(Object.keys(found.body), ['containerPathStat']);
  const rows: [head: string, end: object, status: number, code: string][] = [
    ['not-found FileNotFound\nno such file in container: /x\0', { exit_code: 1 }, 404, 'FileNotFound'],
    ['not-found PathNotDirectory\npath was not a directory: /x\0', { exit_code: 1 }, 400, 'PathNotDirectory'],
    ['not-found NotSupported\nthe VM has no program tar\0', { exit_code: 1 }, 501, 'NotSupported'],
    ['', { error: { code: 'NoSuchProgram', message: 'no sh' } }, 501, 'NotSupported'],
    ['', { error: { code: 'VmNotRunning', message: 'it stopped' } }, 409, 'VmNotRunning'],
    ['', { exit_code: 3 }, 500, 'InternalError'],
    ['nonsense\0', { exit_code: 0 }, 500, 'InternalError'],
  ];
  for (const [head, end, code, name] of rows)
    t.match(await copy({ path: '/x' }, head, end), { status: code, body: { code: name } }, name);
  await until(async () => (await open()) === 0, 'no stream to be left');

  agent.answer = ({ name }) =>
    name === 'machine_load' ? { result: vm } : { error: { code: 'VmNotRunning', message: 'it has stopped' } };
  const post = (params: object) => app.post(`${at}/docker-copy`, params);
  t.match(await post({ path: '/x' }), { status: 409, body: { code: 'VmNotRunning' } }, 'a task that fails at once');
  vm.state = 'stopped';
  const code = 'DockerCopyStoppedContainerNoPlatformSupport';
  t.match(await post({ path: '/x' }), { status: 409, body: { code, message: /is stopped/ } });
  t.match(await post({}), { status: 400, body: { code: 'InvalidParameters', errors: { 0: { field: 'path' } } } });
  t.match(await post({ path: '/x', mode: 'append' }), { status: 400, body: { errors: { 0: { field: 'mode' } } } });
  t.equal(await open(), 0);
});

t.test('statistics arrive line by line until the caller leaves', async (t) => {
  const { app, at, uuid, vm, join } = await start(t);
  const payload = { clientApiVersion: 1.21, doStream: true };
  const { status: code, body } = await app.post<Copied>(`${at}/docker-stats`, { payload });
  t.equal(code, 200);
  const { socket, params } = await join('vm_stats');
  t.match(params, { uuid, samples: undefined });
  const caller = connectTo(t, body);
  const sample = (cpu_us: number) => {
    const rest = { memory_bytes: 1, memory_limit_bytes: 2, processes: 1, processes_limit: 9 };
    return stdout(`${JSON.stringify({ at: 'now', clock_ms: cpu_us, cpu_us, ...rest })}\n`);
  };
  for (const number of [1, 2, 3]) socket.send(sample(number));
  const lines = () => String(caller.received()).split('\r\n').slice(0, -1);
  await until(() => lines().length === 2, 'two lines');
  t.match(JSON.parse(lines()[1] ?? ''), { memory_stats: { usage: 1 } });
  const left = once(socket, 'close');
  caller.socket.resetAndDestroy();
  await left;
  const one = app.post<Copied>(`${at}/docker-stats`, { payload: { doStream: false } });
  t.match((await join('vm_stats')).params, { samples: 2 });
  t.equal((await one).status, 200);
  const wrong = await app.post(`${at}/docker-stats`, { payload: { doStream: 'yes' } });
  t.match(wrong, { status: 400, body: { errors: { 0: { field: 'payload.doStream' } } } });
  vm.state = 'stopped';
  t.match(await app.post(`${at}/docker-stats`, {}), { status: 409, body: { code: 'VmNotRunning' } });
});

t.test('only a caller without a token gets a port, and no reader', async (t) => {
  const trustedNetworks = { '127.0.0.1/32': ['operator', 'agent'] };
  const { zone, app, at, open } = await start(t, { access: 'tokens', trustedNetworks });
  const tokens = new Tokens({ database: zone.database, random: systemRandom });
  for (const [role, code, name] of [
    ['operator', 501, 'NotSupported'],
    ['reader', 403, 'Forbidden'],
  ] as const) {
    const { token } = await tokens.create({ name: role, role, createdBy: 'the test' });
    for (const [action, body] of [
      ['copy', { path: '/etc' }],
      ['stats', {}],
    ] as const) {
      const answer = await call(app.url, 'POST', `${at}/docker-${action}`, body, { authorization: `Bearer ${token}` });
      t.match(answer, { status: code, body: { code: name } }, `${role} ${action}`);
    }
  }
  t.equal(await open(), 0);
});
