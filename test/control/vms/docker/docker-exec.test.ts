/**
 * `docker-exec` for an agent of this project: a real instance, the agent's end of the stream, and a
 * plain TCP client.
 */
import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import WebSocket from 'ws';
import { Tokens } from '../../../../lib/control/access/tokens.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { CHANNELS, type StreamPlace, streamMessage } from '../../../../lib/protocol/streams/stream.ts';
import { freshZone, type TestApp } from '../../../support/apps.ts';
import { until } from '../../../support/until.ts';
import { call } from '../../http/support.ts';
import { VmAgent } from '../vm-agent.ts';

interface Address {
  host: string;
  port: number;
}

async function start(t: Test, config: Record<string, unknown> = {}) {
  const zone = await freshZone(t);
  const app = await zone.startApp(config);
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const uuid: string = randomUUID();
  const states = new Map([[uuid, 'running']]);
  agent.answer = ({ name, params }) => {
    const state = states.get(String(params.uuid));
    if (name !== 'machine_load') return undefined;
    return state === undefined ? { error: { code: 'VmNotFound', message: 'gone' } } : { result: { uuid, state } };
  };
  const { serverUuid } = agent.machine;
  const pathOf = (vm: string) => `/servers/${serverUuid}/vms/${vm}/docker-exec`;
  const exec = (command: object) => app.post<Address>(pathOf(uuid), { command });
  return { zone, app, agent, uuid, states, exec, pathOf };
}

/** The last task of this name. */
const taskOf = (agent: VmAgent, name: string) =>
  until(() => [...agent.received.values()].findLast((task) => task.name === name), `the task ${name}`);

async function joinAsAgent(t: Test, app: TestApp, agent: VmAgent, name = 'vm_exec') {
  const { params } = await taskOf(agent, name);
  const path = `/agents/${agent.machine.serverUuid}/streams/${(params.stream as StreamPlace).name}`;
  const socket = new WebSocket(`${app.url.replace('http', 'ws')}${path}`);
  const messages: Buffer[] = [];
  let isClosed = false;
  socket.on('message', (data) => messages.push(data as Buffer));
  socket.on('error', () => undefined);
  socket.on('close', () => {
    isClosed = true;
  });
  t.teardown(() => socket.terminate());
  await until(() => socket.readyState === WebSocket.OPEN, 'the agent to join');
  return { socket, messages, isClosed: () => isClosed };
}

function connectTo(t: Test, { host, port }: Address) {
  const socket = connect({ host, port });
  let text = '';
  let isClosed = false;
  socket.on('data', (bytes) => {
    text += String(bytes);
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    isClosed = true;
  });
  t.teardown(() => socket.destroy());
  const lines = () => text.split('\r\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as object]));
  return { socket, lines, isClosed: () => isClosed };
}

t.test('a TCP client and the agent exchange input, output and the end', async (t) => {
  const { app, agent, uuid, exec } = await start(t);
  const { status, body } = await exec({ Cmd: ['sh'], AttachStdin: true, Tty: true });
  t.equal(status, 200);
  t.same(Object.keys(body).sort(), ['host', 'port']);
  t.equal(body.host, '127.0.0.1');
  const { params } = await taskOf(agent, 'vm_exec');
  t.match(params, { uuid, terminal: { type: 'xterm', columns: 80, rows: 24 } });
  t.same(params.args, ['sh']);
  t.match(params.stream, { host: '127.0.0.1', port: Number(new URL(app.url).port) });
  const caller = connectTo(t, body);
  caller.socket.write('{"type":"tty","resize":{"w":100,"h":30}}\r\n{"type":"tty","data":"ls\\n"}\r\n');
  const joined = await joinAsAgent(t, app, agent);
  await until(() => joined.messages.length === 2, 'the input');
  t.same(joined.messages.map(String), ['\u0004{"columns":100,"rows":30}', '\0ls\n']);
  joined.socket.send(streamMessage(CHANNELS.stdout, 'a file'));
  joined.socket.send(streamMessage(CHANNELS.status, '{"exit_code":7,"signal":null}'));
  joined.socket.close();
  await until(caller.isClosed, 'the end');
  t.same(caller.lines(), [
    { type: 'tty', data: 'a file' },
    { type: 'end', data: { code: 7, signal: null } },
  ]);
  const metrics = async () => await (await fetch(`${app.url}/metrics`)).text();
  await until(async () => /^cnapi_streams_open 0$/m.test(await metrics()), 'no stream to be left');
  const [task] = [...agent.received].find(([, { name }]) => name === 'vm_exec') ?? [];
  const audited = async () => JSON.stringify((await app.get('/audit?action=DockerExec')).body);
  await until(async () => (await audited()).includes(String(task)), 'the task to be in the audit');
});

t.test('the log of a VM that has stopped is read, without an exit code', async (t) => {
  const { app, agent, uuid, states, exec } = await start(t);
  states.set(uuid, 'stopped');
  const { body } = await exec({ Logs: true, Tail: 5, Follow: true, Cmd: ['Logs'] });
  t.match((await taskOf(agent, 'vm_logs')).params, { uuid, follow: true, tail: 5 });
  const joined = await joinAsAgent(t, app, agent, 'vm_logs');
  joined.socket.send(streamMessage(CHANNELS.stderr, 'printed\n'));
  joined.socket.send(streamMessage(CHANNELS.status, '{"exit_code":0}'));
  joined.socket.close();
  const caller = connectTo(t, body);
  await until(caller.isClosed, 'the end');
  t.same(caller.lines(), [{ type: 'stderr', data: 'printed\n' }]);
});

t.test('a detached program has no port, and the answer is empty', async (t) => {
  const { agent, exec } = await start(t);
  t.same(await exec({ Cmd: ['sleep', '9'], Detach: true }), { status: 200, body: {} });
  const { params } = await taskOf(agent, 'vm_exec');
  t.same(params.args, ['sleep', '9']);
  t.equal(params.stream, undefined);
});

t.test('a server that runs the maximum number of detached programs says so', async (t) => {
  const { agent, uuid, exec } = await start(t);
  const message = 'This server runs 16 detached programs, the maximum';
  agent.answer = ({ name }) =>
    name === 'machine_load'
      ? { result: { uuid, state: 'running' } }
      : { error: { code: name === 'vm_exec' ? 'TooManyPrograms' : 'TaskError', message } };
  agent.startsTasks = false;
  const refused = await exec({ Cmd: ['sleep', '9'], Detach: true });
  t.match(refused, { status: 429, body: { code: 'TooManyPrograms', message } });
  agent.startsTasks = true;
  t.same(await exec({ Cmd: ['sleep', '9'], Detach: true }), { status: 200, body: {} }, 'what started has been started');
});

t.test('what cannot be run is refused before anything listens', async (t) => {
  const { app, agent, uuid, states, exec, pathOf } = await start(t);
  states.set(uuid, 'stopped');
  t.match(await exec({ Cmd: ['ls'] }), { status: 409, body: { code: 'VmNotRunning', message: /is stopped/ } });
  t.match(await exec({ Cmd: ['ls'], User: 'root' }), { status: 501, body: { code: 'NotSupported', message: /User/ } });
  t.match(await exec({}), { status: 400, body: { code: 'InvalidParameters' } });
  const missing = await app.post(pathOf(randomUUID()), { command: { Cmd: ['ls'] } });
  t.match(missing, { status: 404, body: { code: 'ResourceNotFound' } });
  t.match(await (await fetch(`${app.url}/metrics`)).text(), /^cnapi_streams_total 0$/m);
  t.notOk([...agent.received.values()].some(({ name }) => name === 'vm_exec'));
});

t.test('a task that is refused leaves no port', async (t) => {
  const { app, uuid, exec, pathOf } = await start(t);
  const ticketed = { command: { Cmd: ['ls'] }, ticket_uuid: randomUUID() };
  t.match(await app.post(pathOf(uuid), ticketed), { status: 409, body: { code: 'TicketNotActive' } });
  t.match(await (await fetch(`${app.url}/metrics`)).text(), /^cnapi_streams_open 0$/m);
  t.equal((await exec({ Cmd: ['ls'] })).status, 200);
});

t.test('a caller with a token gets no port, one in a trusted network does, at most 16 for a server', async (t) => {
  const trustedNetworks = { '127.0.0.1/32': ['operator', 'agent'] };
  const { zone, app, uuid, exec, pathOf } = await start(t, { access: 'tokens', trustedNetworks });
  const tokens = new Tokens({ database: zone.database, random: systemRandom });
  const { token } = await tokens.create({ name: 'somebody', role: 'operator', createdBy: 'the test' });
  const command = { Cmd: ['ls'] };
  const asked = (given: object) =>
    call(app.url, 'POST', pathOf(uuid), { command: given }, { authorization: `Bearer ${token}` });
  t.match(await asked(command), { status: 501, body: { code: 'NotSupported', message: /trustedNetworks/ } });
  t.match(await asked({ ...command, Detach: true }), { status: 200 }, 'it needs no port');
  for (let number = 0; number < 16; number += 1) t.equal((await exec(command)).status, 200);
  t.match(await exec(command), { status: 429, body: { code: 'TooManyStreams' } });
});

t.test('an instance that stops tells the caller, and the agent ends the program', async (t) => {
  const { app, agent, exec } = await start(t);
  const { body } = await exec({ Cmd: ['cat'], AttachStdin: true });
  const joined = await joinAsAgent(t, app, agent);
  const caller = connectTo(t, body);
  caller.socket.write('{"type":"stdin","data":"x"}\r\n');
  await until(() => joined.messages.length > 0, 'the input');
  const unused = await exec({ Cmd: ['cat'] });
  await app.stop();
  await until(() => caller.isClosed() && joined.isClosed(), 'the end');
  t.match(caller.lines(), { 0: { type: 'stderr', data: /InstanceDraining/ }, 1: { type: 'end', data: { code: 126 } } });
  const late = connectTo(t, unused.body);
  await until(late.isClosed, 'the other port to be closed');
  t.same(late.lines(), []);
});
