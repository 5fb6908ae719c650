/**
 * The HTTP client over real sockets. Peers that misbehave:
 * test/control/legacy/legacy-http-client.test.ts.
 */
import { readFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import net, { type AddressInfo, type Socket } from 'node:net';
import { createSecureContext } from 'node:tls';
import t from 'tap';
import { buildTlsOptions, type HttpTarget, targetOf } from '../../../lib/platform/http-client/connect.ts';
import { HttpClient, type HttpRequest } from '../../../lib/platform/http-client/http-client.ts';
import { HttpError } from '../../../lib/platform/http-client/http-error.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { Authority } from '../../support/certificates.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import type { Teardown } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

interface Peer {
  target: HttpTarget;
  /** Open connections. */
  sockets: Set<Socket>;
  /** Connections so far. */
  connections(): number;
}

async function listen(t: Teardown, server: net.Server, host = '127.0.0.1'): Promise<Peer> {
  const sockets = new Set<Socket>();
  let connections = 0;
  server.on('connection', (socket: Socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { target: { host: '127.0.0.1', port }, sockets, connections: () => connections };
}

const serving = (t: Teardown, listener: RequestListener) => listen(t, createServer(listener));

/** A peer that does this with each connection. */
const raw = (t: Teardown, onConnection: (socket: Socket) => void) => listen(t, net.createServer(onConnection));

function clientFor(t: Teardown, deps: Partial<ConstructorParameters<typeof HttpClient>[0]> = {}): HttpClient {
  const client = new HttpClient({ clock: systemClock, ...deps });
  t.teardown(() => client.close());
  return client;
}

const get = ({ target }: Peer): HttpRequest => ({ target, method: 'GET', path: '/' });

async function failure(work: Promise<unknown>): Promise<HttpError> {
  const error = await work.catch((thrown: unknown) => thrown);
  if (error instanceof HttpError) return error;
  throw new Error('the request did not fail as expected', { cause: error });
}

const textOf = async (client: HttpClient, request: HttpRequest) =>
  (await client.request(request)).text({ maxBytes: 1_000_000 });

t.test('a body, headers and the status arrive; a redirect is an answer', async (t) => {
  const heard: object[] = [];
  const peer = await serving(t, async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    heard.push({ body, host: request.headers.host, length: request.headers['content-length'], a: request.headers.a });
    response.writeHead(302, { location: '/elsewhere', 'x-twice': ['1', '2'] });
    response.end('€');
  });
  const { target } = peer;
  const request: HttpRequest = { target, method: 'POST', path: '/a?b', headers: { a: 'é' }, body: '€' };
  const answer = await clientFor(t).request({ ...request, target: { ...target, name: 'cnapi.example' } });
  t.match(answer, { status: 302 });
  t.equal(answer.header('location'), '/elsewhere');
  t.equal(answer.header('x-twice'), '1');
  t.equal(await answer.text({ maxBytes: 3 }), '€');
  t.same(heard, [{ body: '€', host: `cnapi.example:${target.port}`, length: '3', a: 'é' }]);
});

t.test('kept connections are shared; a request without keepAlive has its own', async (t) => {
  const asked: (string | undefined)[] = [];
  const peer = await serving(t, (request, response) => {
    asked.push(request.headers.connection);
    response.end('x');
  });
  const client = clientFor(t);
  for (let n = 0; n < 3; n++) await textOf(client, { ...get(peer), keepAlive: true });
  t.equal(peer.connections(), 1);
  await textOf(client, get(peer));
  t.equal(peer.connections(), 2);
  t.same(asked, ['keep-alive', 'keep-alive', 'keep-alive', 'close']);
  await until(() => peer.sockets.size === 1, 'the own connection to be closed');
  client.close();
  await until(() => peer.sockets.size === 0, 'the kept connection to be closed');
});

t.test('at most 64 connections to one target are open; others wait', async (t) => {
  const waiting: (() => void)[] = [];
  const peer = await serving(t, (_request, response) => void waiting.push(() => response.end('x')));
  const client = clientFor(t);
  const all = Array.from({ length: 70 }, () => textOf(client, { ...get(peer), keepAlive: true }));
  await until(() => waiting.length === 64, '64 requests');
  for (const answer of waiting.splice(0)) answer();
  await until(() => waiting.length === 6, 'the others');
  for (const answer of waiting) answer();
  t.equal((await Promise.all(all)).length, 70);
  t.equal(peer.connections(), 64);
});

t.test('connections to more than 256 targets are not kept', async (t) => {
  const server = createServer((_request, response) => response.end('x'));
  const peer = await listen(t, server, '0.0.0.0');
  const client = clientFor(t);
  for (let n = 1; n <= 260; n++) {
    const target = { ...peer.target, host: `127.0.${n >> 8}.${n & 255}` };
    await textOf(client, { target, method: 'GET', path: '/', keepAlive: true });
  }
  await until(() => peer.sockets.size <= 256, 'the first connections to be closed');
});

t.test('a kept connection that ends without an answer is reported as stale', async (t) => {
  let requests = 0;
  const peer = await serving(t, (request, response) => {
    requests += 1;
    if (requests === 2) request.socket.destroy();
    else response.end('x');
  });
  const client = clientFor(t);
  await textOf(client, { ...get(peer), keepAlive: true });
  const stale = await failure(client.request({ ...get(peer), keepAlive: true }));
  t.match(stale, { kind: 'broken-off', mayHaveArrived: true, wasStale: true });
  t.equal(requests, 2, 'it is not repeated here');
  t.equal(await textOf(client, { ...get(peer), keepAlive: true }), 'x');
  requests = 1;
  t.equal((await failure(clientFor(t).request({ ...get(peer), keepAlive: true }))).wasStale, false, 'a new connection');
});

t.test('a kept connection that was closed meanwhile is replaced', async (t) => {
  const peer = await serving(t, (_request, response) => response.end('x'));
  const client = clientFor(t);
  await textOf(client, { ...get(peer), keepAlive: true });
  for (const socket of peer.sockets) socket.destroy();
  await until(() => peer.sockets.size === 0, 'the end of the connection');
  t.equal(await textOf(client, { ...get(peer), keepAlive: true }), 'x');
  t.equal(peer.connections(), 2);
});

const failures: [name: string, request: Partial<HttpRequest>, ms: number, expected: object][] = [
  [
    'the head',
    { headMs: 7_000 },
    7_000,
    { kind: 'timed-out', mayHaveArrived: true, reason: 'no answer within 7000 ms' },
  ],
  ['everything', { totalMs: 9_000 }, 9_000, { kind: 'timed-out', reason: 'no answer within 9000 ms' }],
];

for (const keepAlive of [false, true]) {
  const kind = keepAlive ? 'kept' : 'own';
  for (const [what, limits, ms, expected] of failures) {
    t.test(`the time limit for ${what} counts by the clock and closes the connection (${kind})`, async (t) => {
      const clock = new ManualClock();
      let requests = 0;
      const peer = await serving(t, () => {
        requests += 1;
      });
      const failed = failure(clientFor(t, { clock }).request({ ...get(peer), ...limits, keepAlive }));
      await until(() => requests === 1, 'the request');
      await clock.advance(ms - 1);
      t.equal(peer.sockets.size, 1);
      await clock.advance(1);
      t.match(await failed, expected);
      await until(() => peer.sockets.size === 0, 'the connection to be closed');
    });
  }

  t.test(`a connection that is not ready in time is closed (${kind})`, async (t) => {
    const clock = new ManualClock();
    // Never answers the greeting of TLS.
    const peer = await raw(t, (socket) => void socket.resume());
    const target = { ...peer.target, tls: { names: ['127.0.0.1'] } };
    const client = clientFor(t, { clock, connectMs: 3_000 });
    const failed = failure(client.request({ ...get(peer), target, keepAlive }));
    await until(() => peer.sockets.size === 1, 'the connection');
    await clock.advance(3_000);
    t.match(await failed, { kind: 'timed-out', mayHaveArrived: false, reason: 'no connection within 3000 ms' });
    await until(() => peer.sockets.size === 0, 'the connection to be closed');
  });

  t.test(`an aborted request ends at once (${kind})`, async (t) => {
    const client = clientFor(t);
    const stop = new AbortController();
    const request = { method: 'GET', path: '/', keepAlive, signal: stop.signal } as const;
    const mute = await serving(t, () => undefined);
    const slow = await serving(t, (_request, response) => response.write('x'));
    const failed = failure(client.request({ ...request, target: mute.target }));
    const body = failure((await client.request({ ...request, target: slow.target })).text({ maxBytes: 9 }));
    await until(() => mute.sockets.size === 1, 'the request');
    stop.abort();
    t.match(await failed, { kind: 'given-up' });
    t.match(await body, { kind: 'given-up', mayHaveArrived: true });
    const early = await failure(client.request({ ...request, target: mute.target }));
    t.match(early, { kind: 'given-up', mayHaveArrived: false });
    await until(() => mute.sockets.size + slow.sockets.size === 0, 'the connections to be closed');
    t.equal(mute.connections(), 1);
  });
}

t.test('a request that is aborted before its connection is ready closes it', async (t) => {
  const peer = await raw(t, (socket) => void socket.resume());
  const target = { ...peer.target, tls: { names: ['127.0.0.1'] } };
  const stop = new AbortController();
  const failed = failure(clientFor(t).request({ ...get(peer), target, signal: stop.signal }));
  await until(() => peer.sockets.size === 1, 'the connection');
  stop.abort();
  t.match(await failed, { kind: 'given-up', mayHaveArrived: false });
  await until(() => peer.sockets.size === 0, 'the connection to be closed');
});

t.test('closing the client ends requests and connections in every state', async (t) => {
  const mute = await serving(t, () => undefined);
  const deaf = await raw(t, (socket) => void socket.resume());
  const tls = { ...deaf.target, tls: { names: ['127.0.0.1'] } };
  const client = clientFor(t);
  const failed = [true, false].flatMap((keepAlive) => [
    failure(client.request({ ...get(mute), keepAlive })),
    failure(client.request({ ...get(deaf), target: tls, keepAlive })),
  ]);
  await until(() => mute.sockets.size === 2 && deaf.sockets.size === 2, 'the connections');
  client.close();
  for (const { kind } of await Promise.all(failed)) t.match(kind, /broken-off|unreachable/);
  await until(() => mute.sockets.size + deaf.sockets.size === 0, 'the connections to be closed');
});

t.test('a body is read no faster than it is taken', async (t) => {
  const size = 64 * 1024 * 1024;
  let sent = 0;
  const peer = await serving(t, (_request, response) => {
    const more = () => {
      while (sent < size) {
        sent += 65_536;
        if (!response.write(Buffer.alloc(65_536, 'x'))) return;
      }
      response.end();
    };
    response.on('drain', more);
    more();
  });
  const answer = await clientFor(t).request(get(peer));
  let before = -1;
  await until(async () => {
    const isStill = sent === before;
    before = sent;
    await new Promise((resolve) => setTimeout(resolve, 100));
    return isStill;
  }, 'the peer to stop sending');
  t.ok(sent < size / 2, `${sent} bytes were sent before any was taken`);
  let bytes = 0;
  for await (const piece of answer.pieces()) bytes += piece.length;
  t.equal(bytes, size);
});

t.test('an answer in chunks that ends before its last chunk is broken off', async (t) => {
  const peer = await raw(t, (socket) => {
    const begin = 'HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n';
    socket.once('data', () => socket.write(begin));
  });
  const answer = await clientFor(t).request(get(peer));
  const failing = failure(answer.text({ maxBytes: 100 }));
  for (const socket of peer.sockets) socket.end();
  t.match(await failing, { kind: 'broken-off', reason: /^the connection ended/ });
});

t.test('a connection may end while its body waits to be read', async (t) => {
  const body = 'x'.repeat(100_000);
  for (const [end, head, expected] of [
    ['end', '', body],
    ['end', `content-length: ${body.length}\r\n`, body],
    ['end', `content-length: ${body.length + 1}\r\n`, 'broken-off'],
    ['resetAndDestroy', `content-length: ${body.length + 1}\r\n`, 'broken-off'],
  ] as const) {
    const peer = await raw(t, (socket) => {
      socket.once('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\nconnection: close\r\n${head}\r\n${body}`, () =>
          setTimeout(() => socket[end](), 50),
        );
      });
    });
    const answer = await clientFor(t).request(get(peer));
    await until(() => peer.sockets.size === 0, 'the end of the connection');
    const text = answer.text({ maxBytes: 1_000_000 }).catch(({ kind }: HttpError) => kind);
    t.equal(await text, expected, `${end} ${head}`);
  }
});

t.test('many small pieces are yielded as few large ones', async (t) => {
  const peer = await raw(t, (socket) => {
    socket.once('data', () =>
      socket.end(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(10_000)}0\r\n\r\n`),
    );
  });
  const pieces: Buffer[] = [];
  for await (const piece of (await clientFor(t).request(get(peer))).pieces()) pieces.push(piece);
  t.equal(Buffer.concat(pieces).toString(), 'x'.repeat(10_000));
  t.ok(pieces.length < 100, `${pieces.length} pieces`);
});

t.test('a body that is too large, silent, slow or left is cut', async (t) => {
  const clock = new ManualClock();
  const peer = await serving(t, (_request, response) => response.write('0123456789'));
  const client = clientFor(t, { clock });
  const large = (await client.request(get(peer))).text({ maxBytes: 9 });
  t.match(await failure(large), { kind: 'too-large', reason: 'the answer is larger than 9 bytes' });
  for (const [limits, reason] of [
    [{ silenceMs: 4_000 }, 'nothing came for 4 s'],
    [{ withinMs: 4_000 }, 'no answer within 4000 ms'],
  ] as const) {
    const answer = await client.request(get(peer));
    const failed = failure(answer.text({ maxBytes: 99, ...limits }));
    // The first piece has been read.
    await until(() => clock.advance(0).then(() => peer.sockets.size === 1), 'the answer');
    await clock.advance(4_000);
    t.match(await failed, { kind: 'timed-out', reason });
  }
  for await (const piece of (await client.request(get(peer))).pieces()) {
    t.equal(piece.length, 10);
    break;
  }
  (await client.request(get(peer))).drop();
  await until(() => peer.sockets.size === 0, 'the connections to be closed');
});

t.test('the certificate must be of a trusted CA and valid for one of the names, at each connection', async (t) => {
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue({ names: 'DNS:a.example,IP:127.0.0.1' });
  const credentials = { cert: readFileSync(certFile), key: readFileSync(keyFile) };
  let servername: unknown;
  const server = createTlsServer(credentials, (request, response) => {
    servername = (request.socket as Socket & { servername?: unknown }).servername;
    response.end('x');
  });
  const peer = await listen(t, server);
  const secureContext = createSecureContext({ ca: readFileSync(authority.caFile) });
  const client = clientFor(t);
  const ask = (tls: HttpTarget['tls'], keepAlive = false) =>
    textOf(client, { ...get(peer), target: { ...peer.target, name: 'c.example', tls }, keepAlive });
  for (const keepAlive of [false, true, false, true]) {
    t.equal(await ask({ names: ['127.0.0.1'], secureContext }, keepAlive), 'x');
    t.equal(servername, false, 'an address is not sent as a server name');
    t.equal(await ask({ names: ['b.example', 'a.example'], secureContext }, keepAlive), 'x');
    t.equal(servername, 'b.example');
    const wrong = await failure(ask({ names: ['b.example'], secureContext }, keepAlive));
    t.match(wrong, { kind: 'unreachable', mayHaveArrived: false, reason: /altnames/ });
    t.match(await failure(ask({ names: ['a.example'] }, keepAlive)), { kind: 'untrusted', mayHaveArrived: false });
  }
  t.equal(await ask({ names: ['b.example'], isVerified: false }), 'x');
  const plain = await serving(t, (_request, response) => response.end('x'));
  const target = { ...plain.target, tls: { names: ['a.example'], secureContext } };
  t.match(await failure(client.request({ ...get(plain), target })), { kind: 'no-tls' });
  t.equal(buildTlsOptions({ names: ['a.example'] }).rejectUnauthorized, true);
});

t.test('a request that is not valid fails without being sent', async (t) => {
  const peer = await serving(t, (_request, response) => response.end('x'));
  for (const keepAlive of [false, true]) {
    const invalid = { ...get(peer), headers: { a: 'b\r\nc: d' }, keepAlive };
    t.match(await failure(clientFor(t).request(invalid)), { kind: 'unreachable', reason: /invalid a header/ });
  }
  t.equal(peer.connections(), 0);
});

t.test('a target is read from a URL', async (t) => {
  t.same(targetOf('http://10.0.0.1'), { host: '10.0.0.1', port: 80 });
  t.same(targetOf('https://[::1]:8443/x'), { host: '::1', port: 8443, tls: { names: ['::1'] } });
});
