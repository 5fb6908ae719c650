/**
 * Answers to refused upgrades and to bytes that are not an HTTP request, which have no response
 * object.
 */
import { createServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import t from 'tap';
import { CnapiError } from '../../../../lib/platform/errors.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { until } from '../../../support/until.ts';
import { type Api, raw, SERVER, startApi } from '../support.ts';

const full = new CnapiError('ServiceUnavailable', 503, 'the instance is full', { retryAfterSeconds: 1 });

const upgradeAt = (path: string, protocol = 'websocket') =>
  `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n`;
const link = upgradeAt(`/agents/${SERVER}/link`);

/** A connection that its owner keeps open when the other side closes. */
function stubbornSocket({ port }: Api, bytes: string): Socket {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () => socket.write(bytes));
  return socket.on('error', () => {}).resume();
}

t.test('an agent that the link refuses gets the reason', async (t) => {
  const { port } = await startApi(t, { upgradeRefusal: full });
  const seen = await raw(port, link);
  t.match(seen, /^HTTP\/1.1 503 Service Unavailable\r\n/);
  t.match(seen, /\r\nRetry-After: 1\r\n/);
  t.match(seen, /{"code":"ServiceUnavailable","message":"the instance is full"}$/);
});

t.test('agents that reset their refused connections do not crash the server', async (t) => {
  const { port, call } = await startApi(t, { upgradeRefusal: full });
  for (const path of [`/agents/${SERVER}/link`, '/ping']) {
    const resets = Array.from({ length: 200 }, () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const socket = connect(port, '127.0.0.1', () => socket.write(upgradeAt(path), () => socket.resetAndDestroy()));
      socket.on('error', () => {}).on('close', () => resolve());
      return promise;
    });
    await Promise.all(resets);
    t.equal((await call('GET', '/ping')).status, 200, path);
  }
});

t.test('a refused caller that does not close holds no connection', async (t) => {
  const api = await startApi(t, { upgradeRefusal: full });
  for (const bytes of [link, upgradeAt('/ping'), 'no HTTP at all\r\n\r\n']) {
    const socket = stubbornSocket(api, bytes);
    const insisting = setInterval(() => socket.write('x'), 20);
    await new Promise((resolve) => socket.on('close', resolve));
    clearInterval(insisting);
    t.pass(`closed by the server: ${bytes.slice(0, 30)}`);
  }
});

t.test('a request for a link in another form than that of a WebSocket is refused', async (t) => {
  const { port, upgrades, arrivals } = await startApi(t);
  const wrong: [header: string, version: string, says: RegExp][] = [
    ['Content-Length: 3\r\n', '1.1', /has a body/],
    ['Transfer-Encoding: chunked\r\n', '1.1', /has a body/],
    ['Expect: 100-continue\r\n', '1.1', /has an Expect header/],
    ['', '1.0', /HTTP\/1\.1/],
  ];
  for (const [header, version, says] of wrong) {
    const head = link.replace('HTTP/1.1', `HTTP/${version}`).replace(/\r\n$/, header);
    const seen = await raw(port, `${head}\r\nabc`);
    t.match(seen, /^HTTP\/1.1 400 /, header);
    t.match(JSON.parse(seen.split('\r\n\r\n')[1] ?? '{}'), { code: 'BadRequest', message: says });
  }
  t.same([upgrades, arrivals], [[], []], 'no link was asked for one');
});

t.test('a refused caller may still send for a while, without a reset that could cost it the answer', async (t) => {
  const clock = new ManualClock();
  const { port } = await startApi(t, { upgradeRefusal: full, clock });
  const rows: [bytes: string, status: number][] = [
    [`GET /ping HTTP/1.1\r\nHost: localhost\r\nX: ${'x'.repeat(20_000)}`, 431],
    ['no HTTP at all\r\n\r\n', 400],
    [upgradeAt('/ping'), 400],
    [link, 503],
  ];
  for (const [bytes, status] of rows) {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () => socket.write(bytes));
    let seen = '';
    const errors: string[] = [];
    socket.on('error', ({ message }) => errors.push(message));
    socket.on('data', (piece) => {
      seen += piece;
    });
    const closed = new Promise((resolve) => socket.once('close', resolve));
    await new Promise((resolve) => socket.once('end', resolve));
    for (let piece = 0; piece < 50 && errors.length === 0; piece++)
      await new Promise((resolve) => socket.write('x', () => setImmediate(resolve)));
    socket.end();
    await closed;
    t.match(seen, new RegExp(`^HTTP/1.1 ${status} `));
    t.same(errors, [], `${status}`);
  }
});

t.test('a refused caller that sends without end is cut off', async (t) => {
  const clock = new ManualClock();
  const { port } = await startApi(t, { clock });
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () =>
    socket.write('no HTTP at all\r\n\r\n'),
  );
  socket.on('error', () => undefined).resume();
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await new Promise((resolve) => socket.once('end', resolve));
  socket.write('x'.repeat(4_000_000));
  await closed;
  t.pass('although time stands still');
});

t.test('bytes that are not a valid request get an error with a code', async (t) => {
  const { port, call } = await startApi(t);
  const ask = async (bytes: string, status: number, code: string) => {
    const seen = await raw(port, bytes);
    t.match(seen, new RegExp(`^HTTP/1.1 ${status} `), bytes.slice(0, 40));
    t.equal(JSON.parse(seen.split('\r\n\r\n')[1] ?? '').code, code);
  };
  await ask('no HTTP at all\r\n\r\n', 400, 'InvalidContent');
  await ask('GET /ping HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'InvalidContent');
  await ask('GET /ping HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n', 400, 'InvalidContent');
  await ask(`GET /ping HTTP/1.1\r\nHost: localhost\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 'RequestEntityTooLarge');
  const post = `POST /servers/${SERVER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`;
  await ask(post, 400, 'InvalidContent');
  t.equal((await call('GET', '/ping')).status, 200);
});

t.test('a request that is refused for its head gets one answer, whatever follows it', async (t) => {
  const { port, call } = await startApi(t);
  const post = (header: string) => `POST /servers/${SERVER} HTTP/1.1\r\n${header}\r\n`;
  const next = 'GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n';
  for (const [bytes, status] of [
    [`${post('Host: localhost\r\nTransfer-Encoding: xchunked\r\n')}${next}`, 400],
    [`${post('Host: localhost\r\nTransfer-Encoding: identity\r\n')}${next}`, 400],
    [`${post('Host: localhost\r\nTransfer-Encoding: gzip\r\nConnection: close\r\n')}${next}`, 400],
    [`${post('Host: evil.example\r\nTransfer-Encoding: chunked\r\n')}no chunk\r\n`, 403],
    [`${post('Host: localhost\r\nTransfer-Encoding: chunked\r\nExpect: all\r\n')}no chunk\r\n`, 417],
  ] as const) {
    const seen = await raw(port, bytes);
    t.same(seen.match(/HTTP\/1\.1 \d+/g), [`HTTP/1.1 ${status}`], bytes);
    t.match(seen, /\r\nConnection: close\r\n/i, bytes);
  }
  t.equal((await call('GET', '/ping')).status, 200);
});

t.test('invalid bytes during a streamed answer put no second answer into it', async (t) => {
  const { port, tasks } = await startApi(t);
  const { id } = await tasks.create({ serverUuid: SERVER, name: 'nop', params: {} });
  const head = `GET /tasks/${id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n`;
  const { promise, resolve } = Promise.withResolvers<string>();
  let seen = '';
  const socket = connect(port, '127.0.0.1', () => socket.write(head));
  socket.on('error', () => {}).on('close', () => resolve(seen));
  socket.on('data', (chunk) => {
    if (seen === '') socket.write('no HTTP at all\r\n\r\n');
    seen += chunk;
  });
  t.notMatch(await promise, 'InvalidContent');
});

const canChoose = 'shouldUpgradeCallback' in createServer();
t.test(
  'an offer to upgrade to another protocol is ignored',
  { skip: !canChoose && 'not supported by this Node.js' },
  async (t) => {
    const { port } = await startApi(t);
    t.match(await raw(port, upgradeAt('/info', 'h2c'), /"version"/), /^HTTP\/1.1 200 /);
  },
);

t.test('a connection that pipelines too much is cut off, and its waits end', async (t) => {
  const { port, call, tasks } = await startApi(t);
  const { id } = await tasks.create({ serverUuid: SERVER, name: 'nop', params: {} });
  const ahead = (count: number) => `GET /tasks/${id}/wait?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n`.repeat(count);
  const moderate = connect(port, '127.0.0.1', () => moderate.write(ahead(10)));
  moderate.on('error', () => {});
  await until(() => tasks.waiting >= 10, 'the moderate connection to wait ten times');
  t.equal(await raw(port, ahead(2000)), '', 'the connection is cut off');
  await until(() => tasks.waiting <= 10, 'the waits of the other connection to end');
  moderate.destroy();
  await until(() => tasks.waiting === 0, 'all waits to end');
  t.equal((await call('GET', '/ping')).status, 200);
});
