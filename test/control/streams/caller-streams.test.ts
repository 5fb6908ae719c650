/** A caller, an instance and an agent's end of a stream, over real sockets. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import WebSocket from 'ws';
import type { TaskFrame } from '../../../lib/protocol/link/frames.ts';
import { CHANNELS, MAX_STREAM_MESSAGE, type StreamPlace, streamMessage } from '../../../lib/protocol/streams/stream.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { joinAgent, newMachine } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

interface End {
  socket: WebSocket;
  messages: Buffer[];
  /** The contents of the text messages. */
  texts: string[];
  closed: () => { code: number; reason: string } | undefined;
  refused: () => number | undefined;
}

function connect(t: Test, url: string, path: string): End {
  const socket = new WebSocket(`${url.replace('http', 'ws')}${path}`, { perMessageDeflate: false });
  const messages: Buffer[] = [];
  const texts: string[] = [];
  let closed: { code: number; reason: string } | undefined;
  let refused: number | undefined;
  socket.on('message', (data, isBinary) => (isBinary ? messages.push(data as Buffer) : texts.push(String(data))));
  socket.on('unexpected-response', (request, { statusCode }) => {
    refused = statusCode;
    request.destroy();
  });
  socket.on('error', () => undefined);
  socket.on('close', (code, reason) => {
    closed = { code, reason: String(reason) };
  });
  t.teardown(() => socket.terminate());
  return { socket, messages, texts, closed: () => closed, refused: () => refused };
}

const server: string = randomUUID();
const callerOf = (t: Test, app: TestApp, of = server) => connect(t, app.url, `/servers/${of}/stream`);
const nameOf = async ({ texts }: End) =>
  (JSON.parse(await until(() => texts[0], 'the name of the stream')) as { stream: string }).stream;
const join = (t: Test, app: TestApp, name: string, of = server) => connect(t, app.url, `/agents/${of}/streams/${name}`);
const statusOf = (message: Buffer | undefined) =>
  message?.[0] === CHANNELS.status ? JSON.parse(message.subarray(1).toString()) : undefined;
const bytesOf = ({ messages }: End) => messages.reduce((sum, one) => sum + one.length - 1, 0);

t.test('messages pass in both directions, in order, and a status ends the stream', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const caller = callerOf(t, app);
  const name = await nameOf(caller);
  // More than the instance keeps until the agent has joined; the rest waits in the network.
  const early = Array.from({ length: 20 }, (_, index) => streamMessage(CHANNELS.stdin, Buffer.alloc(10_000, index)));
  for (const message of early) caller.socket.send(message);
  const agent = join(t, app, name);
  await until(() => agent.messages.length === early.length, 'the input');
  t.same(agent.messages, early);
  for (const text of ['a', 'b', 'c']) agent.socket.send(streamMessage(CHANNELS.stdout, text));
  agent.socket.send(streamMessage(CHANNELS.status, '{"exit_code":3}'));
  agent.socket.close();
  t.match(await until(caller.closed, 'the end'), { code: 1000 });
  t.same(caller.messages.slice(0, 3).map(String), ['\u0001a', '\u0001b', '\u0001c']);
  t.same(statusOf(caller.messages[3]), { exit_code: 3 });
});

t.test('a caller that reads slowly makes the agent wait, and loses nothing', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const caller = callerOf(t, app);
  const agent = join(t, app, await nameOf(caller));
  await until(() => agent.socket.readyState === WebSocket.OPEN, 'the agent to join');
  caller.socket.pause();
  const piece = streamMessage(CHANNELS.stdout, Buffer.alloc(MAX_STREAM_MESSAGE - 1, 'x'));
  const pieces = 400;
  for (let sent = 0; sent < pieces; sent += 1) agent.socket.send(piece);
  agent.socket.send(streamMessage(CHANNELS.status, '{"exit_code":0}'));
  agent.socket.close();
  let before = -1;
  // The network of this machine takes some MB; when it has, nothing more moves.
  await until(async () => {
    const now = agent.socket.bufferedAmount;
    const isStill = now === before;
    before = now;
    await new Promise((resolve) => setTimeout(resolve, 200));
    return isStill;
  }, 'the agent to wait');
  t.ok(before > 5_000_000, `${before} bytes wait at the agent, not at the instance`);
  caller.socket.resume();
  await until(caller.closed, 'the end');
  t.equal(bytesOf(caller), pieces * (MAX_STREAM_MESSAGE - 1) + '{"exit_code":0}'.length);
});

t.test('only the agent of the named server joins, once, and only while a caller waits', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const caller = callerOf(t, app);
  const name = await nameOf(caller);
  const instance = name.slice(0, 36);
  for (const [path, why] of [
    [`/agents/${randomUUID()}/streams/${name}`, 'another server'],
    [`/agents/${server}/streams/${instance}.${randomUUID()}`, 'another name'],
    [`/agents/${server}/streams/${name}x`, 'a longer name'],
  ] as const)
    t.equal(await until(connect(t, app.url, path).refused, why), 404, why);
  const agent = join(t, app, name);
  await until(() => agent.socket.readyState === WebSocket.OPEN, 'the agent to join');
  t.equal(await until(join(t, app, name).refused, 'the second'), 404);
  caller.socket.close();
  t.match(await until(agent.closed, 'the end of the agent'), { code: 1001, reason: 'the caller has left' });
  t.equal(await until(join(t, app, name).refused, 'the end'), 404);
});

t.test('the caller is told why a stream ends that its agent did not end', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const lost = callerOf(t, app);
  const agent = join(t, app, await nameOf(lost));
  await until(() => agent.socket.readyState === WebSocket.OPEN, 'the agent to join');
  agent.socket.terminate();
  await until(lost.closed, 'the end');
  t.match(statusOf(lost.messages[0]), { error: { code: 'StreamLost', message: /the task says/ } });
  const waiting = callerOf(t, app);
  await nameOf(waiting);
  await app.stop();
  await until(waiting.closed, 'the end of the instance');
  t.match(statusOf(waiting.messages[0]), { error: { code: 'InstanceDraining' } });
});

t.test('an end that does not read learns that the other one has gone', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const caller = callerOf(t, app);
  const agent = join(t, app, await nameOf(caller));
  await until(() => agent.socket.readyState === WebSocket.OPEN, 'the agent to join');
  agent.socket.pause();
  const piece = streamMessage(CHANNELS.stdin, Buffer.alloc(MAX_STREAM_MESSAGE - 1));
  for (let sent = 0; sent < 400; sent += 1) caller.socket.send(piece);
  await until(() => caller.socket.bufferedAmount > 0, 'the caller to wait');
  caller.socket.terminate();
  // The instance notices by its pings, and leaves; the agent notices by its own.
  await until(async () => /^cnapi_streams_open 0$/m.test(await (await fetch(`${app.url}/metrics`)).text()), 'the end');
});

t.test('a text, an empty message, or one that is too large ends the stream', async (t) => {
  const app = await (await freshZone(t)).startApp();
  for (const [send, code] of [
    [(socket: WebSocket) => socket.send('text'), 1008],
    [(socket: WebSocket) => socket.send(Buffer.alloc(0)), 1008],
    [(socket: WebSocket) => socket.send(Buffer.alloc(MAX_STREAM_MESSAGE + 1)), 1009],
  ] as const) {
    const caller = callerOf(t, app);
    const agent = join(t, app, await nameOf(caller));
    await until(() => agent.socket.readyState === WebSocket.OPEN, 'the agent to join');
    send(caller.socket);
    t.match(await until(caller.closed, 'the end'), { code });
    await until(agent.closed, 'the end of the agent');
  }
});

t.test('a token has a limit of open streams, and a reader may open none', async (t) => {
  const app = await (await freshZone(t)).startApp({
    access: 'tokens',
    trustedNetworks: { '127.0.0.1/32': ['operator'], '127.0.0.2/32': ['reader', 'agent'] },
    connectionsPerSource: 0,
    requestsPerSecond: 0,
  });
  const from = (localAddress: string, path: string) =>
    new WebSocket(`${app.url.replace('http', 'ws')}${path}`, { localAddress });
  const reader = from('127.0.0.2', `/servers/${server}/stream`);
  const [, { statusCode }] = (await once(reader, 'unexpected-response')) as [unknown, { statusCode: number }];
  t.equal(statusCode, 403);
  const callers = Array.from({ length: 16 }, () => callerOf(t, app));
  await Promise.all(callers.map(nameOf));
  t.equal(await until(callerOf(t, app).refused, 'a refusal for one server'), 429);
  for (let other = 0; callers.length < 100; other += 1)
    callers.push(callerOf(t, app, `00000000-0000-4000-8000-0000000000${10 + (other % 6)}`));
  await Promise.all(callers.map(nameOf));
  t.match(await (await fetch(`${app.url}/metrics`)).text(), /^cnapi_streams_open 100$/m);
  t.equal(await until(callerOf(t, app, randomUUID()).refused, 'a refusal'), 429);
  callers[0]?.socket.close();
  await until(() => callers[0]?.closed(), 'the end of one');
  const next = callerOf(t, app);
  t.ok(await nameOf(next));
});

t.test('a path that is none of a stream is refused before anything is read', async (t) => {
  const app = await (await freshZone(t)).startApp();
  t.equal(await until(connect(t, app.url, '/servers/nonsense/stream').refused, 'a refusal'), 409);
  t.equal(await until(connect(t, app.url, `/servers/${server}/streams`).refused, 'a refusal'), 400);
  // The router cannot decode these, and answers nothing.
  for (const name of ['%', '%ff', '%c0%80', 'a%2fb', 'x'.repeat(201)])
    t.equal(await until(connect(t, app.url, `/agents/${server}/streams/${name}`).refused, name), 400, name);
  t.match(await app.get(`/servers/${server}/stream`), { status: 426, body: { code: 'UpgradeRequired' } });
});

t.test('the task that has a stream names an instance of this zone, whatever its caller says', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const machine = newMachine();
  const { agent } = await joinAgent(app.url, machine, { capabilities: ['task:exec'] });
  t.teardown(() => agent.close());
  const path = `/servers/${machine.serverUuid}/exec`;
  await until(
    async () => (await app.get<{ status?: string }>(`/servers/${machine.serverUuid}`)).body.status === 'running',
  );
  const stream = await nameOf(callerOf(t, app, machine.serverUuid));
  const { status, body } = await app.post<{ id: string }>(path, {
    stream,
    script: 'cat',
    terminal: { columns: 80, rows: 24 },
  });
  t.equal(status, 202);
  const task = await until(
    () => agent.frames.find((frame): frame is TaskFrame => frame.type === 'task' && frame.id === body.id),
    'the task',
  );
  const { port } = new URL(app.url);
  t.match(task, {
    name: 'exec',
    params: {
      script: 'cat',
      terminal: { type: 'xterm' },
      stream: { name: stream, host: '127.0.0.1', port: Number(port) },
    },
  });
  t.equal((task.params.stream as StreamPlace).name, stream);
  const refused = async (request: object, at = path) => (await app.post<{ errors: object[] }>(at, request)).body;
  t.match(await refused({ stream: `${randomUUID()}.${randomUUID()}`, script: 'cat' }), {
    code: 'InvalidParameters',
    errors: { 0: { field: 'stream' } },
  });
  t.match(await refused({ stream, script: 'cat', terminal: { columns: 0, rows: 1 } }), { code: 'InvalidParameters' });
  t.match(await refused({ stream: 'x', script: 'cat' }), { errors: { 0: { field: 'stream' } } });
  t.match(await refused({ task: 'exec', params: {} }, `/servers/${machine.serverUuid}/tasks`), {
    errors: { 0: { field: 'task', message: /route of its own/ } },
  });
});
