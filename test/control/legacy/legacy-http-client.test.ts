/**
 * One request to an agent that may be anything: real sockets, and peers that misbehave in every
 * way.
 */
import net, { type AddressInfo, type Socket } from 'node:net';
import t from 'tap';
import { type AgentAnswer, type AgentCall, LegacyHttpClient } from '../../../lib/control/legacy/legacy-http-client.ts';
import { HttpError } from '../../../lib/platform/http-client/http-error.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { startFakeLegacyAgent } from '../../support/fake-legacy-agent.ts';
import type { Teardown } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

const limits = { connectMs: 5_000, bodyMs: 300, bodyBytes: 10_000, allBodyBytes: 50_000, serverBodyBytes: 100_000 };
const newClient = () => new LegacyHttpClient({ clock: systemClock, version: '1.2.3', limits });

function callTo(port: number, fields: Partial<AgentCall> = {}): AgentCall {
  return {
    address: { host: '127.0.0.1', port },
    serverUuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
    requestId: 'r-1',
    method: 'POST',
    path: '/tasks',
    body: { task: 'nop', params: {} },
    timeoutMs: 20_000,
    ...fields,
  };
}

/** A peer that does this once it has received something. */
async function peer(t: Teardown, misbehave: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = net.createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
    socket.once('data', () => misbehave(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, sockets, connections: () => connections };
}

async function outcome(
  call: Promise<AgentAnswer>,
): Promise<AgentAnswer | Pick<HttpError, 'kind' | 'mayHaveArrived' | 'reason'>> {
  try {
    return await call;
  } catch (error) {
    if (!(error instanceof HttpError)) throw error;
    const { kind, mayHaveArrived, reason } = error;
    return { kind, mayHaveArrived, reason };
  }
}

const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n';
const drip = (socket: Socket, what: string, ms: number) => {
  const timer = setInterval(() => socket.write(what), ms);
  socket.on('close', () => clearInterval(timer));
};

t.test("a task is sent as Triton's CNAPI sends it, on a connection of its own", async (t) => {
  const agent = await startFakeLegacyAgent(t);
  const call = callTo(agent.port, { serverUuid: agent.serverUuid, body: { task: 'nop', params: { a: 'é' } } });
  const client = newClient();
  t.same(await client.call(call), { status: 200, isJson: true, body: '{}' });
  const [received] = agent.received;
  t.match(received, { task: 'nop', params: { a: 'é' }, isDigestRight: true });
  t.match(received?.headers, {
    'x-server-uuid': agent.serverUuid,
    'x-request-id': 'r-1',
    'content-type': 'application/json',
    accept: 'application/json',
    'user-agent': 'cnapi/1.2.3',
    connection: 'close',
  });
  t.same(client.stats(), { calls: 1, failed: 0, unread: 0 });
});

t.test('a request id that is not a valid header is left out', async (t) => {
  const agent = await startFakeLegacyAgent(t);
  await newClient().call(callTo(agent.port, { serverUuid: agent.serverUuid, requestId: 'a\r\nb: c' }));
  t.equal(agent.received[0]?.headers['x-request-id'], agent.serverUuid);
});

t.test('a refused connection is reported as not sent', async (t) => {
  const agent = await startFakeLegacyAgent(t);
  const { port } = agent;
  await agent.close();
  const client = newClient();
  t.same(await outcome(client.call(callTo(port))), {
    kind: 'unreachable',
    mayHaveArrived: false,
    reason: 'connection refused',
  });
  t.match(client.stats(), { calls: 1, failed: 1 });
});

const failures: [name: string, misbehave: (socket: Socket) => void, expected: object][] = [
  [
    'closes the connection',
    (socket) => socket.destroy(),
    { kind: 'broken-off', mayHaveArrived: true, reason: 'the connection ended before the answer' },
  ],
  [
    'resets',
    (socket) => socket.resetAndDestroy(),
    { kind: 'broken-off', mayHaveArrived: true, reason: 'connection reset' },
  ],
  ['ends without an answer', (socket) => socket.end(), { kind: 'broken-off', mayHaveArrived: true }],
  [
    'speaks another protocol',
    (socket) => socket.write('SSH-2.0-OpenSSH_9.2\r\n'),
    { kind: 'unreadable', mayHaveArrived: true },
  ],
  ['sends endless headers', (socket) => drip(socket, `x-${'y'.repeat(4_000)}: z\r\n`, 1), { kind: 'unreadable' }],
  [
    'sends a huge header',
    (socket) => socket.write(`${head}x: ${'y'.repeat(100_000)}\r\n\r\n`),
    { kind: 'unreadable', reason: /overflow/ },
  ],
  [
    'sends interim answers again and again',
    (socket) => drip(socket, 'HTTP/1.1 102 Processing\r\n\r\n', 1),
    { kind: 'unreadable', reason: 'too many interim answers' },
  ],
  [
    'upgrades to WebSocket',
    (socket) => socket.write('HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n'),
    { kind: 'unreadable', mayHaveArrived: true },
  ],
];

const answers: [name: string, misbehave: (socket: Socket) => void, expected: object][] = [
  [
    'sends an endless body',
    (socket) => socket.write(`${head}\r\n${'x'.repeat(20_000)}`),
    { status: 200, unread: /longer than 10000 bytes/ },
  ],
  [
    'sends an endless body in chunks',
    (socket) => {
      socket.write(`${head}transfer-encoding: chunked\r\n\r\n`);
      drip(socket, `1000\r\n${'x'.repeat(4096)}\r\n`, 1);
    },
    { status: 200, unread: /longer than/ },
  ],
  [
    'sends a body slowly, byte by byte',
    (socket) => {
      socket.write(`${head}content-length: 9000\r\n\r\n`);
      drip(socket, 'x', 10);
    },
    { status: 200, unread: /took longer than 300 ms/ },
  ],
  [
    'sends a body that breaks off',
    (socket) => {
      socket.write(`${head}content-length: 9000\r\n\r\nxx`);
      setTimeout(() => socket.destroy(), 20);
    },
    { status: 200, unread: /broke off/ },
  ],
  [
    'sends invalid chunks',
    (socket) => socket.write(`${head}transfer-encoding: chunked\r\n\r\nzzzz\r\n`),
    { status: 200, unread: /broke off/ },
  ],
];

t.test('a call and its connection end whatever the peer does', async (t) => {
  for (const [name, misbehave, expected] of [...failures, ...answers]) {
    t.test(`a call ends when its peer ${name}`, async (t) => {
      const { port, sockets } = await peer(t, misbehave);
      const client = newClient();
      t.match(await outcome(client.call(callTo(port))), expected);
      await until(() => sockets.size === 0, 'the connection to be closed');
      const { failed, unread } = client.stats();
      t.equal(failed + unread, 1);
    });
  }
});

t.test('a redirect is an answer and is not followed', async (t) => {
  const elsewhere = await peer(t, (socket) => socket.destroy());
  const location = `http://127.0.0.1:${elsewhere.port}/tasks`;
  const { port } = await peer(t, (socket) =>
    socket.end(`HTTP/1.1 307 Over there\r\nlocation: ${location}\r\ncontent-length: 0\r\n\r\n`),
  );
  t.match(await outcome(newClient().call(callTo(port))), { status: 307, body: '' });
  t.equal(elsewhere.connections(), 0);
});

t.test('a silent peer is given up at the timeout, or at once when the caller gives up', async (t) => {
  const { port, sockets } = await peer(t, () => undefined);
  t.match(await outcome(newClient().call(callTo(port, { timeoutMs: 100 }))), {
    kind: 'timed-out',
    mayHaveArrived: true,
    reason: 'no answer within 100 ms',
  });
  const giveUp = new AbortController();
  const call = outcome(newClient().call(callTo(port, { signal: giveUp.signal })));
  await until(() => sockets.size === 1, 'the connection');
  // This end is connected as well: what is written from here on may be read.
  await new Promise((resolve) => setTimeout(resolve, 50));
  giveUp.abort();
  t.match(await call, { kind: 'given-up', mayHaveArrived: true });
  t.match(await outcome(newClient().call(callTo(port, { signal: giveUp.signal }))), {
    kind: 'given-up',
    mayHaveArrived: false,
  });
  await until(() => sockets.size === 0, 'the connections to be closed');
});

t.test('the bodies of one server leave memory for those of others', async (t) => {
  const { port } = await peer(t, (socket) => socket.write(`${head}content-length: 9999\r\n\r\n${'x'.repeat(9_000)}`));
  const client = new LegacyHttpClient({
    clock: systemClock,
    version: '1.2.3',
    limits: { ...limits, bodyMs: 60_000, serverBodyBytes: 30_000 },
  });
  const givenUp = new AbortController();
  const unread: unknown[] = [];
  const calls = Array.from({ length: 10 }, async () => {
    const answer = await outcome(client.call(callTo(port, { signal: givenUp.signal })));
    unread.push('unread' in answer ? answer.unread : answer);
  });
  await until(() => unread.length === 7, 'all but three to be refused');
  t.same(new Set(unread), new Set(['too much was being read from this server concurrently']));
  const agent = await startFakeLegacyAgent(t);
  t.match(await client.call(callTo(agent.port, { serverUuid: agent.serverUuid })), { status: 200 });
  givenUp.abort();
  await Promise.all(calls);
});

t.test('many large bodies at once share one memory limit', async (t) => {
  const { port, sockets } = await peer(t, (socket) =>
    socket.write(`${head}content-length: 9999\r\n\r\n${'x'.repeat(9_000)}`),
  );
  const client = newClient();
  const all = await Promise.all(Array.from({ length: 10 }, () => outcome(client.call(callTo(port)))));
  const reasons = all.map((answer) => ('unread' in answer ? answer.unread : ''));
  t.equal(reasons.filter((reason) => reason === 'too much was being read concurrently').length >= 4, true);
  await until(() => sockets.size === 0, 'the connections to be closed');
  // The memory counted for them is free again.
  const agent = await startFakeLegacyAgent(t);
  t.match(await client.call(callTo(agent.port, { serverUuid: agent.serverUuid })), { status: 200 });
});
