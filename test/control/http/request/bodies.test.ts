/** Which bodies are read, when, and within which limits. */
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { MAX_BODY_BYTES, parseBody } from '../../../../lib/control/http/request/body.ts';
import { MAX_PARAMS } from '../../../../lib/protocol/url-encoded.ts';
import { call, raw, SERVER, startApi } from '../support.ts';
import { startWithTokens } from '../with-tokens.ts';

const EMPTY_ARRAYS = `{"a":[${'[],'.repeat(349_000)}[]]}`;
const FORM = 'application/x-www-form-urlencoded';
const json = { 'content-type': 'application/json' };

t.test('a body is not read when the route has no parameter in it', async (t) => {
  const { call, port } = await startApi(t);
  for (const [path, status] of [
    ['/ping', 200],
    ['/ready', 200],
    ['/openapi.json', 200],
    ['/servers', 200],
    [`/servers/${SERVER}`, 404],
  ]) {
    const answer = await raw(
      port,
      `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{"limit":0`,
    );
    t.match(answer, new RegExp(`^HTTP/1.1 ${status} `), `${path}: broken JSON is not an error`);
  }
  t.equal((await call('DELETE', `/tokens/${SERVER}`, '{')).status, 404);
  t.equal((await call('DELETE', `/servers/${SERVER}/tickets`, '{', json)).status, 400, '`force` may be in the body');
});

t.test('a megabyte of empty arrays sent to /ping costs less than parsing it', async (t) => {
  const { port } = await startApi(t);
  const head = 'GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n';
  const plain = Buffer.from(`${head}\r\n`);
  const attack = Buffer.from(`${head}Content-Length: ${EMPTY_ARRAYS.length}\r\n\r\n${EMPTY_ARRAYS}`);
  const costs = { plain: [] as number[], attack: [] as number[], parsed: [] as number[] };
  for (let round = 0; round < 15; round += 1) {
    costs.plain.push(await cpuOf(async () => t.match(await exchange(port, plain), /^HTTP\/1.1 200 /)));
    costs.attack.push(await cpuOf(async () => t.match(await exchange(port, attack), /^HTTP\/1.1 200 /)));
    costs.parsed.push(await cpuOf(async () => JSON.parse(EMPTY_ARRAYS)));
  }
  const [plainCost = 0, attackCost = 0, parseCost = 0] = [costs.plain, costs.attack, costs.parsed].map(median);
  t.ok(attackCost - plainCost < parseCost, `${plainCost}, ${attackCost} and ${parseCost} µs`);
});

t.test('a form with too many parameters is refused before it is parsed', async (t) => {
  const { call } = await startApi(t);
  const pairs = (count: number) => Array.from({ length: count }, (_, at) => `p${at}=`).join('&');
  t.equal(Object.keys(parseBody(pairs(MAX_PARAMS), FORM)).length, MAX_PARAMS, 'the largest number allowed');
  const tooMany = { status: 409, body: { code: 'InvalidArgument', message: 'More than 1000 parameters' } };
  t.match(await call('POST', '/loglevel', pairs(MAX_PARAMS + 1), { 'content-type': FORM }), tooMany);
  t.match(await call('POST', `/loglevel?${pairs(MAX_PARAMS + 1)}`), tooMany, 'in the query');
  const flood = 'a&'.repeat(50_000);
  t.match(await call('POST', '/loglevel', flood, { 'content-type': FORM }), tooMany);
  const costs = { refused: [] as number[], parsed: [] as number[] };
  for (let round = 0; round < 5; round += 1) {
    costs.refused.push(await cpuOf(async () => t.throws(() => parseBody(flood, FORM), { code: 'InvalidArgument' })));
    costs.parsed.push(await cpuOf(async () => new URLSearchParams(flood)));
  }
  const [refused = 0, parsed = 0] = [costs.refused, costs.parsed].map(median);
  t.ok(refused < parsed / 4, `${refused} and ${parsed} µs`);
});

t.test('no body is read, and no 100 Continue sent, before the caller is authorized', async (t) => {
  const { port, as } = await startWithTokens(t);
  const reader = await as('reader');
  const operator = await as('operator');
  const ask = (head: string, token?: string) =>
    `POST /loglevel HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${head}${
      token === undefined ? '' : `Authorization: Bearer ${token}\r\n`
    }\r\n`;
  const expecting = 'Expect: 100-continue\r\nContent-Length: 16\r\n';
  for (const head of ['Content-Length: 1000000\r\n', expecting]) {
    t.match(await raw(port, ask(head), /"code"/), /^HTTP\/1.1 401 /, 'before any byte of the body');
    t.match(await raw(port, ask(head, reader.token), /"code"/), /^HTTP\/1.1 403 /);
  }
  const answered = await withBodyAfterContinue(port, ask(expecting, operator.token), '{"level":"loud"}');
  t.match(answered, /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 500 /, 'the body is read: its level is invalid');
});

t.test('a body that is too large is refused without 100 Continue', async (t) => {
  const { port } = await startApi(t);
  const head = `POST /loglevel HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: ${2 ** 30}\r\n\r\n`;
  t.match(await raw(port, head), /^HTTP\/1.1 413 /, 'the connection is closed');
});

t.test('a gzip body is subject to the same limits', async (t) => {
  const { url, addServer, servers } = await startApi(t);
  await addServer(SERVER);
  const post = async (body: Buffer, encoding: string) => {
    const headers = { ...json, 'content-encoding': encoding };
    const response = await fetch(`${url}/servers/${SERVER}`, { method: 'POST', headers, body: Uint8Array.from(body) });
    return { status: response.status, text: await response.text() };
  };
  const update = (comments: string) => Buffer.from(JSON.stringify({ comments }));
  for (const encoding of ['gzip', 'GZIP', 'x-gzip']) {
    t.same(await post(gzipSync(update(encoding)), encoding), { status: 204, text: '' });
    t.equal((await servers.get(SERVER))?.server.comments, encoding);
  }
  t.equal((await post(update('plain'), 'identity')).status, 204);
  t.match(await post(update('no gzip'), 'gzip'), { status: 400, text: /InvalidContent/ });
  t.match(await post(gzipSync(update('cut')).subarray(0, 20), 'gzip'), { status: 400, text: /InvalidContent/ });
  const bomb = gzipSync(Buffer.alloc(100 * MAX_BODY_BYTES, ' '));
  t.ok(bomb.length < MAX_BODY_BYTES);
  t.match(await post(bomb, 'gzip'), { status: 413, text: /RequestEntityTooLarge/ });
  t.match(await post(gzipSync(Buffer.from(EMPTY_ARRAYS)), 'gzip'), { status: 413, text: /more than 50000 values/ });
  for (const encoding of ['deflate', 'br', 'gzip, gzip'])
    t.match(await post(update('x'), encoding), { status: 415, text: /UnsupportedMediaType.*send gzip/ });
});

t.test('a caller that reads only after it has written its body sees the refusal', async (t) => {
  const open = await startApi(t);
  const secured = await startWithTokens(t);
  const body = Buffer.alloc(5 * MAX_BODY_BYTES, 'x');
  const head = `POST /loglevel HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n`;
  t.match(await writtenThenRead(open.port, head, body), /^HTTP\/1.1 413 .*RequestEntityTooLarge/s);
  t.match(await writtenThenRead(secured.port, head, body), /^HTTP\/1.1 401 .*Unauthorized/s);
  const content = body.toString();
  for (let round = 0; round < 5; round += 1)
    t.match(await call(open.url, 'POST', '/loglevel', content, json), { status: 413 }, 'fetch sees it too');
});

t.test('a body without end is cut off', async (t) => {
  const { port } = await startApi(t);
  const chunk = Buffer.from(`10000\r\n${'x'.repeat(0x10000)}\r\n`);
  const head = Buffer.from('GET /ping HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
  let sent = 0;
  const socket = connect(port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  socket.on('error', () => undefined);
  socket.resume();
  const pump = () => {
    while (!socket.destroyed && socket.write(chunk)) sent += chunk.length;
  };
  socket.on('drain', pump);
  socket.write(head, pump);
  await new Promise((resolve) => socket.once('close', resolve));
  t.ok(sent < 200 * MAX_BODY_BYTES, `${sent} bytes before it was cut off`);
});

/** Everything that arrives until the other side closes. */
function exchange(port: number, request: Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    let seen = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(request));
    socket.setEncoding('utf8').on('data', (text) => {
      seen += text;
    });
    socket.on('close', () => resolve(seen)).on('error', reject);
  });
}

function withBodyAfterContinue(port: number, head: string, body: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let seen = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(head));
    socket.setEncoding('utf8').on('data', (text) => {
      if (seen === '') socket.write(body);
      seen += text;
      if (seen.includes('"code"')) socket.destroy();
    });
    socket.on('close', () => resolve(seen)).on('error', reject);
  });
}

function writtenThenRead(port: number, head: string, body: Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    let seen = '';
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(head);
      socket.write(body, () => socket.resume());
    });
    socket.on('data', (bytes) => {
      seen += bytes;
    });
    socket.pause();
    socket.on('close', () => resolve(seen)).on('error', reject);
  });
}

async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
