import { connect } from 'node:net';
import t from 'tap';
import { until } from '../../support/until.ts';
import { raw, SERVER, startApi, UNKNOWN_UUID } from './support.ts';

t.test("every answer carries the headers of Triton's CNAPI", async (t) => {
  const { call } = await startApi(t);
  const { status, headers, body } = await call('GET', '/info');
  t.equal(status, 200);
  t.same(body, { version: '1.2.3' });
  t.equal(headers.get('server'), 'cnapi/1.2.3');
  t.equal(headers.get('content-type'), 'application/json');
  t.match(headers.get('content-length'), /^\d+$/);
  t.match(headers.get('x-response-time'), /^\d+$/);
  t.ok(headers.get('x-server-name'));
  t.ok(headers.get('date'));
  t.match(headers.get('x-request-id'), /^[0-9a-f-]{36}$/);
});

t.test('a valid request id is echoed, an invalid one is replaced', async (t) => {
  const { call, logged, port } = await startApi(t);
  const mine = await call('GET', '/info', undefined, { 'x-request-id': 'job-17' });
  t.equal(mine.headers.get('x-request-id'), 'job-17');
  t.match(logged.filter(({ msg }) => msg === 'request').at(-1), {
    req_id: 'job-17',
    path: '/info',
    status: 200,
    method: 'GET',
  });
  const older = await call('GET', '/info', undefined, { 'request-id': 'job-18' });
  t.equal(older.headers.get('x-request-id'), 'job-18');
  const long = await call('GET', '/info', undefined, { 'x-request-id': 'x'.repeat(101) });
  t.match(long.headers.get('x-request-id'), /^[0-9a-f-]{36}$/);
  const odd = await raw(
    port,
    'GET /info HTTP/1.1\r\nHost: localhost\r\nx-request-id: a b\r\nConnection: close\r\n\r\n',
  );
  t.match(odd, /x-request-id: [0-9a-f-]{36}\r\n/);
});

t.test('health checks are not logged', async (t) => {
  const { call, logged } = await startApi(t);
  await call('GET', '/ping');
  await call('GET', '/ready');
  await call('GET', '/info');
  t.same(
    logged.filter(({ msg }) => msg === 'request').map(({ route }) => route),
    ['GetInfo'],
  );
});

t.test("an unknown path is 404 and a wrong method 405, in the words of Triton's CNAPI", async (t) => {
  const { call } = await startApi(t);
  const unknown = await call('GET', '/x?y=1');
  t.equal(unknown.status, 404);
  t.same(unknown.body, { code: 'ResourceNotFound', message: '/x does not exist' });
  const wrong = await call('PUT', '/ping');
  t.equal(wrong.status, 405);
  t.same(wrong.body, { code: 'MethodNotAllowedError', message: 'PUT is not allowed' });
  t.match(wrong.headers.get('allow'), /GET/);
});

t.test('malformed JSON, or JSON that is not an object, is 400 InvalidContent', async (t) => {
  const { call } = await startApi(t);
  const json = { 'content-type': 'application/json' };
  for (const content of ['{', '[1]', '"x"', 'null', '{"a":1}}']) {
    const { status, body } = await call('POST', '/loglevel', content, json);
    t.equal(status, 400, content);
    t.equal(body.code, 'InvalidContent', content);
    t.match(body.message, /^Invalid JSON: /, content);
  }
  const xml = await call('POST', '/loglevel', '<a/>', { 'content-type': 'text/xml' });
  t.equal(xml.status, 415);
});

t.test('parameters come from path, query, form or JSON; path precedes query, query precedes body', async (t) => {
  const { call, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const form = { 'content-type': 'application/x-www-form-urlencoded' };
  t.equal((await call('POST', '/loglevel', 'level=40', form)).status, 200);
  t.same((await call('GET', '/loglevel')).body, { level: 40 });
  t.equal((await call('POST', '/loglevel?level=50', { level: 20 })).status, 200);
  t.same((await call('GET', '/loglevel')).body, { level: 50 });
  t.equal(
    (await call('POST', `/servers/${SERVER}/nop?server_uuid=${UNKNOWN_UUID}`, { server_uuid: UNKNOWN_UUID })).status,
    200,
  );
  t.equal(tasks.created.at(-1)?.serverUuid, SERVER);
});

t.test('names of prototype properties are ordinary names', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  for (const name of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
    const query = await call('GET', `/servers?${name}=1`);
    t.equal(query.status, 409, name);
    t.same(query.body, { code: 'InvalidArgument', message: `${name} is not an explicitly defined parameter` });
    const body = await call('POST', `/servers/${SERVER}`, `{"${name}":{"reserved":true}}`, {
      'content-type': 'application/json',
    });
    t.equal(body.status, 409, name);
  }
  t.equal(({} as Record<string, unknown>).reserved, undefined);
  const nested = await call('POST', `/servers/${SERVER}`, '{"traits":{"__proto__":{"x":1},"ok":"y"}}', {
    'content-type': 'application/json',
  });
  t.equal(nested.status, 204);
  t.equal((await call('GET', `/servers/${SERVER}`)).body.traits.ok, 'y');
});

t.test('a parameter that is given twice is refused by name', async (t) => {
  const { call } = await startApi(t);
  const { status, body } = await call('GET', '/servers?limit=1&limit=2');
  t.equal(status, 409);
  t.same(body, { code: 'InvalidArgument', message: 'limit is given more than once' });
});

t.test('text that the database cannot store is refused by name', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  t.match((await call('GET', '/servers?hostname=%00')).body, {
    code: 'InvalidArgument',
    message: /^hostname contains a NUL/,
  });
  const json = { 'content-type': 'application/json' };
  for (const traits of ['{"a":"\\u0000"}', '{"\\u0000":1}', '{"a":"\\ud800"}', '{"a":1e400}']) {
    const { status, body } = await call('POST', `/servers/${SERVER}`, `{"traits":${traits}}`, json);
    t.equal(status, 409, traits.slice(0, 30));
    t.match(body.message, /^traits /);
  }
});

t.test('a body with too many values or levels is refused before it is parsed', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const json = { 'content-type': 'application/json' };
  const update = (traits: string) => call('POST', `/servers/${SERVER}`, `{"traits":${traits}}`, json);
  for (const levels of [64, 200, 500_000]) {
    const { status, body } = await update(`{"a":${'['.repeat(levels)}${']'.repeat(levels)}}`);
    t.equal(status, 413, `${levels} levels`);
    t.match(body, { code: 'RequestEntityTooLarge', message: 'The body is nested more than 64 levels deep' });
  }
  t.match(await update(`{"a":[${'[],'.repeat(349_000)}[]]}`), {
    status: 413,
    body: { code: 'RequestEntityTooLarge', message: 'The body holds more than 50000 values' },
  });
  t.equal((await update(`{"a":${'['.repeat(60)}${']'.repeat(60)},"b":[${'0,'.repeat(49_000)}0]}`)).status, 204);
});

t.test('bodies, headers and URLs have size limits', async (t) => {
  const { call, port } = await startApi(t);
  const big = 'x'.repeat(1024 * 1024);
  const declared = await raw(
    port,
    `POST /loglevel HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${2 ** 30}\r\n\r\n`,
    /"code"/,
  );
  t.match(declared, /^HTTP\/1.1 413 /);
  t.match(declared, /Connection: close/i);
  const chunked = await raw(
    port,
    `POST /loglevel HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n${big}xx`,
    /"code"/,
  );
  t.match(chunked, /^HTTP\/1.1 413 /);
  t.equal((await call('GET', `/servers?hostname=${'x'.repeat(9000)}`)).status, 414);
  t.match(
    await raw(port, `GET /ping HTTP/1.1\r\nHost: localhost\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`),
    /^HTTP\/1.1 431 /,
  );
  const many = Array.from({ length: 1001 }, (_, index) => `p${index}=`).join('&');
  t.match((await call('GET', `/servers?${many}`)).body, {
    code: 'InvalidArgument',
    message: 'More than 1000 parameters',
  });
  t.equal((await call('GET', '/ping')).status, 200);
});

t.test('a caller that leaves in the middle of its body causes no error in the log', async (t) => {
  const { port, call, logged } = await startApi(t);
  const socket = connect(port, '127.0.0.1', () => {
    socket.write('POST /loglevel HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"l');
    setTimeout(() => socket.destroy(), 20);
  });
  const isLogged = () => logged.some(({ route, msg }) => route === 'SetLogLevel' && msg === 'request');
  await until(isLogged, 'its request to be logged');
  t.same(
    logged.filter(({ level }) => level === 'error'),
    [],
  );
  // It ended only its side, as far as the instance can see, so it is answered.
  t.match(
    logged.find(({ route }) => route === 'SetLogLevel'),
    { status: 400 },
  );
  t.equal((await call('GET', '/ping')).status, 200);
});

t.test('invalid bytes on a socket do not disturb the server', async (t) => {
  const { call, port } = await startApi(t);
  const junk = [
    'hello\r\n\r\n',
    '\0\0\0\0',
    'GET http://evil.example/ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    'GET * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    'OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    'GET /%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    'GET /servers/%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    'GET //evil.example/ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    'GET /ping HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n',
    'GET /ping HTTP/1.1\r\nHost: [::1\r\nConnection: close\r\n\r\n',
    'GET /ping HTTP/1.1\r\nHost: localhost:99999999\r\nConnection: close\r\n\r\n',
    'GET /ping HTTP/1.1\r\nHost: localhost:99999\r\nConnection: close\r\n\r\n',
    'GET /ping HTTP/1.1\r\nHost: 127.0.0.999\r\nConnection: close\r\n\r\n',
    'GET /agents/zzz/link HTTP/1.1\r\nHost: 127.0.0.999\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    'CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n',
    'POST /loglevel HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'PUT /ping HTTP/1.1\r\nHost: localhost\r\nExpect: nonsense\r\nConnection: close\r\n\r\n',
  ];
  for (const bytes of junk) {
    const seen = await raw(port, bytes);
    t.ok(
      seen === '' || /^HTTP\/1.1 4\d\d /.test(seen),
      `${JSON.stringify(bytes.slice(0, 60))} → ${seen.split('\r\n')[0]}`,
    );
    t.equal((await call('GET', '/ping')).status, 200);
  }
});

t.test('an unknown Expect header is 417 with code and message', async (t) => {
  const { port } = await startApi(t);
  const expecting = 'Expect: 200-ok\r\nConnection: close\r\n\r\n';
  const refused = await raw(port, `GET /ping HTTP/1.1\r\nHost: localhost\r\n${expecting}`);
  t.match(refused, /^HTTP\/1.1 417 /);
  t.match(JSON.parse(refused.split('\r\n\r\n')[1] ?? ''), { code: 'ExpectationFailed', message: /100-continue/ });
  t.match(refused, /x-request-id: /);
});

t.test('a failing handler answers 500 without details, which go to the log', async (t) => {
  const { call, logged } = await startApi(t, {
    parts: {
      openApi() {
        throw new Error('secret insides');
      },
    },
  });
  const { status, body, text, headers } = await call('GET', '/openapi.json');
  t.equal(status, 500);
  t.equal(body.code, 'InternalError');
  t.notMatch(text, /secret/);
  t.match(
    logged.find(({ level }) => level === 'error'),
    { req_id: headers.get('x-request-id'), err: { message: 'secret insides' } },
  );
  t.equal((await call('GET', '/ping')).status, 200);
});

t.test('an unavailable database is 503 with Retry-After', async (t) => {
  const { call, database } = await startApi(t);
  await database.database.stop();
  const { status, body, headers } = await call('GET', '/servers');
  t.equal(status, 503);
  t.equal(body.code, 'ServiceUnavailable');
  t.equal(headers.get('retry-after'), '1');
  t.equal((await call('GET', '/ping')).status, 200);
});
