import fc from 'fast-check';
import t from 'tap';
import { readRequestHead, reasonToRefuse } from '../../../../lib/control/http/request/request-head.ts';
import { raw, SERVER, startApi } from '../support.ts';

t.test('a Host that is not this instance is 403, which prevents DNS rebinding', async (t) => {
  const { port } = await startApi(t, { config: { advertiseHost: 'cnapi-7.example' } });
  const ask = (host: string) => raw(port, `GET /info HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
  for (const host of [
    'localhost',
    `localhost:${port}`,
    '127.0.0.1',
    `127.0.0.2:${port}`,
    `[::1]:${port}`,
    'LOCALHOST',
    'cnapi-7.example',
    'cnapi.testdc.cnapi.test',
    'cnapi.testdc.cnapi.test.:80',
  ]) {
    t.match(await ask(host), /^HTTP\/1.1 200 /, host);
  }
  for (const host of [
    'evil.example',
    `evil.example:${port}`,
    '127.0.0.1.evil.example',
    'localhost.evil.example',
    '10.0.0.1',
    '[::2]',
    '0x7f.1',
    '',
  ]) {
    const seen = await ask(host);
    t.match(seen, /^HTTP\/1.1 403 /, `'${host}'`);
    t.match(seen, /"code":"Forbidden"/, `'${host}'`);
  }
  t.match(await raw(port, 'GET /info HTTP/1.0\r\n\r\n'), /^HTTP\/1.1 200 /, 'a health check in HTTP/1.0 has no Host');
});

t.test('with open access, an Authorization header does not admit a foreign Host', async (t) => {
  const { port, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const page = `Host: evil.example:${port}\r\nOrigin: http://evil.example:${port}\r\nAuthorization: Bearer x\r\n`;
  const request = `POST /servers/${SERVER}/nop HTTP/1.1\r\n${page}Content-Length: 0\r\nConnection: close\r\n\r\n`;
  t.match(await raw(port, request), /^HTTP\/1.1 403 /);
  t.equal(tasks.created.length, 0);
});

t.test('in a trusted network, a name and a password do not admit a foreign Host', async (t) => {
  const { port, addServer, tasks } = await startApi(t, {
    config: { access: 'tokens', trustedNetworks: [{ text: '127.0.0.0/8', roles: ['operator'] }] },
  });
  await addServer(SERVER);
  for (const authorization of ['Basic eDp4', 'Basic %%%', 'basic\tx', 'BASIC']) {
    const page = `Host: evil.example:${port}\r\nOrigin: http://evil.example:${port}\r\nAuthorization: ${authorization}\r\n`;
    const request = `POST /servers/${SERVER}/nop HTTP/1.1\r\n${page}Content-Length: 0\r\nConnection: close\r\n\r\n`;
    t.match(await raw(port, request), /^HTTP\/1.1 403 /, authorization);
  }
  t.equal(tasks.created.length, 0);
});

t.test('a foreign Origin is 403 for any method', async (t) => {
  const { url, call, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  for (const origin of [
    'https://evil.example',
    'null',
    'http://localhost:1',
    'http://127.0.0.1',
    'file://',
    url.replace('http:', 'https:'),
  ]) {
    t.equal((await call('GET', '/info', undefined, { origin })).status, 403, origin);
    t.equal((await call('POST', `/servers/${SERVER}/execute`, { script: 'id' }, { origin })).status, 403, origin);
  }
  t.equal(tasks.created.length, 0);
  t.equal((await call('GET', '/info', undefined, { origin: url })).status, 200, 'its own origin is allowed');
});

t.test('upgrades are accepted on the agent link only; plain requests there are 426', async (t) => {
  const { port, call, upgrades } = await startApi(t);
  const upgrade = (path: string, more = '') =>
    raw(
      port,
      `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${more}\r\n`,
      /^HTTP\/1.1 101 /,
    );
  t.match(await upgrade(`/agents/${SERVER.toUpperCase()}/link`), /^HTTP\/1.1 101 /);
  t.same(upgrades, [{ serverUuid: SERVER }]);
  const plain = await call('GET', `/agents/${SERVER}/link`);
  t.equal(plain.status, 426);
  t.equal(plain.body.code, 'UpgradeRequired');
  t.match(await upgrade('/ping'), /^HTTP\/1.1 400 /);
  t.match(await upgrade('/agents/zzz/link'), /^HTTP\/1.1 409 [\s\S]*Invalid server_uuid/);
  t.match(await upgrade(`/agents/${SERVER}/link`, 'Origin: https://evil.example\r\n'), /^HTTP\/1.1 403 /);
  t.match(await upgrade(`/agents/${SERVER}/link?x=http://[`), /^HTTP\/1.1 (101|400) /);
  t.equal((await call('GET', '/ping')).status, 200);
});

t.test('the router can parse every URL that passes the checks, and resolves it to the same path', (t) => {
  const own = { names: new Set(['cnapi.example']), anyAddress: true };
  const host = fc.oneof(
    fc.constantFrom(
      'localhost',
      '127.0.0.1',
      '[::1]',
      'cnapi.example',
      '127.0.0.256',
      'localhost:99999',
      '[::1]:1',
      '127.1',
    ),
    fc.string({ maxLength: 20 }),
    fc.stringMatching(/^127\.\d{1,3}\.\d{1,3}\.\d{1,3}:\d{1,5}$/),
  );
  const url = fc.oneof(
    fc.webPath(),
    fc
      .array(fc.constantFrom('..', '.', '%2e', '%2E.', '', 'a', 'a..', '\\\\'), { maxLength: 4 })
      .map((all) => `/${all.join('/')}`),
    fc.string({ maxLength: 40 }),
    fc.string({ maxLength: 40 }).map((text) => `/${text}`),
  );
  fc.assert(
    fc.property(host, url, fc.boolean(), (host, url, hasToken) => {
      const given = { hosts: [host], url, transferCodings: undefined, origin: undefined, hasToken };
      const head = { ...given, httpVersion: '1.1', scheme: 'http' } as const;
      if (reasonToRefuse(head, own) !== undefined) return true;
      const [path = ''] = url.split('?', 1);
      return new URL(`http://${host}${url}`).pathname.split('/').length === path.split('/').length;
    }),
    { numRuns: 5000 },
  );
  t.end();
});

t.test('a path that proxies and the router would read differently is 400', async (t) => {
  const { port } = await startApi(t);
  const ask = (path: string) => raw(port, `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
  const paths = [
    '/organizations/../ping',
    '/a/%2e%2E/ping',
    '/./ping',
    '/ping/.',
    '//a/ping',
    '/a\\..\\ping',
    '/ping#/a',
  ];
  for (const path of paths) t.match(await ask(path), /^HTTP\/1\.1 400 /, path);
  t.match(await ask('/ping?a=../b'), /^HTTP\/1\.1 200 /, 'a query may have any text');
  t.match(await ask('/servers/a..b'), /^HTTP\/1\.1 (400|404|409) (?![\s\S]*segment)/, 'two dots within a name');
});

t.test('random requests get an answer or a closed connection, and the next one is served', async (t) => {
  const { port, call, logged } = await startApi(t);
  const word = fc.oneof(
    fc.constantFrom('servers', 'tasks', 'ping', SERVER, 'default', '..', '%2e', '%zz', 'wait', 'nop', ''),
    fc.string({ maxLength: 10 }),
  );
  const line = fc.record({
    method: fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'HEAD', 'OPTIONS', 'PATCH', 'PURGE'),
    path: fc.array(word, { maxLength: 4 }).map((words) => `/${words.join('/')}`),
    query: fc.oneof(
      fc.constant(''),
      fc.string({ maxLength: 20 }).map((text) => `?${text}`),
    ),
    body: fc.oneof(fc.constant(''), fc.json(), fc.string({ maxLength: 30 })),
  });
  await fc.assert(
    fc.asyncProperty(line, async ({ method, path, query, body }) => {
      const target = `${path}${query}`.replace(/[\s\0]/g, '%20');
      const length = Buffer.byteLength(body);
      const head = `${method} ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ${length}\r\n`;
      const answer = await raw(port, `${head}Content-Type: application/json\r\n\r\n${body}`);
      return answer === '' || /^HTTP\/1\.1 [2-5]\d\d /.test(answer);
    }),
    { numRuns: 200 },
  );
  t.same(
    logged.filter(({ level }) => level === 'error'),
    [],
    'none of them is logged as an error',
  );
  t.equal((await call('GET', '/ping')).status, 200);
});

t.test('with tokens, a signature admits any name of the host, where it is checked', (t) => {
  const own = { names: new Set<string>(), anyAddress: true };
  const refusal = (url: string, headers: Record<string, string>) => {
    const request = { url, httpVersion: '1.1', headers, headersDistinct: { host: ['chef.example'] } };
    return reasonToRefuse(readRequestHead(request, 'https'), own)?.statusCode;
  };
  const signed = { 'x-ops-sign': 'algorithm=sha256;version=1.3;' };
  t.equal(refusal('/organizations/acme/pushy/jobs', signed), undefined);
  t.equal(refusal('/organizations/acme/pushy/jobs', {}), 403);
  for (const url of ['/servers', '/organizations', '/organizations/acme', '/servers?x=/organizations/acme/pushy/'])
    t.equal(refusal(url, signed), 403, url);
  t.end();
});

t.test('a body in another transfer coding than chunked is refused, so no proxy sees another end of it', async (t) => {
  const { port, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  const ask = (coding: string) =>
    raw(
      port,
      `POST /servers/${SERVER}/nop HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${coding}\r\n\r\n0\r\n\r\n`,
    );
  for (const coding of [
    'identity, chunked',
    'gzip, chunked',
    'identity',
    'gzip',
    'chunked, chunked',
    'identity\r\nTransfer-Encoding: chunked',
  ])
    t.match(await ask(`Transfer-Encoding: ${coding}`), /^HTTP\/1.1 400 /, coding);
  t.equal(tasks.created.length, 0);
  t.match(await ask('Transfer-Encoding: Chunked'), /^HTTP\/1.1 200 /);
});
