import { once } from 'node:events';
import { createConnection } from 'node:net';
import t from 'tap';
import { parseToken, permits } from '../../../lib/control/access/token.ts';
import { changesSomething } from '../../../lib/control/http/route.ts';
import { requiredRoleOf } from '../../../lib/protocol/api/contract/contract.ts';
import { contractList as routes } from '../../../lib/protocol/api/contracts.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { until } from '../../support/until.ts';
import { finished } from './stand-ins.ts';
import { raw, SERVER, startApi, UNKNOWN_UUID } from './support.ts';
import { startWithTokens as start } from './with-tokens.ts';

/**
 * Routes that answer in the form of cnapi. For /pushy see test/control/chef/pushy-access.test.ts.
 */
const own = routes.filter(({ tag }) => tag !== 'pushy');
const pathOf = (path: string) => path.replace(/:\w+/g, SERVER);

t.test('each route requires the intended role', async (t) => {
  const taking = (requiredRole: string) =>
    routes.filter((route) => requiredRoleOf(route) === requiredRole).map(({ name }) => name);
  t.same(taking('anyone').sort(), ['GetChefStatus', 'GetOpenApi', 'Ping', 'Ready']);
  t.same(taking('agent').sort(), ['PostHeartbeat', 'PostStatus', 'RegisterSysinfo']);
  t.same(taking('admin').sort(), ['CreateToken', 'ListAudit', 'ListTokens', 'RevokeToken']);
  for (const route of routes.filter((one) => requiredRoleOf(one) === 'reader'))
    t.equal(route.method, 'GET', route.name);
  // These run a task on the server that looks into it, a VM or an image, which a reader may not.
  const zfs = routes.filter(({ method, tag }) => method === 'GET' && tag === 'zfs').map(({ name }) => name);
  t.equal(zfs.length, 5);
  const tasks = ['ListServerImages', 'GetServerImage', 'GetVmInfo', 'GetVmVnc', 'GetVmProcesses', ...zfs];
  for (const route of routes.filter((one) => requiredRoleOf(one) === 'operator'))
    t.equal(route.method === 'GET', tasks.includes(route.name), route.name);
  for (const route of routes)
    t.equal(changesSomething(route), route.method !== 'GET' && requiredRoleOf(route) !== 'agent', route.name);
});

t.test('without a token, each route that requires a role answers 401 and says how to send one', async (t) => {
  const { call } = await start(t);
  for (const route of own) {
    const { status, headers, body } = await call(
      route.method,
      pathOf(route.path),
      route.method === 'GET' ? undefined : {},
    );
    if (requiredRoleOf(route) === 'anyone') {
      t.equal(status, 200, route.name);
      continue;
    }
    t.equal(status, 401, route.name);
    t.equal(headers.get('www-authenticate'), 'Bearer realm="cnapi"', route.name);
    t.match(body, { code: 'Unauthorized', message: /Authorization: Bearer/ }, route.name);
  }
});

t.test('each role may call the routes of its role and gets 403 on all others', async (t) => {
  const { call, as } = await start(t);
  for (const role of ['reader', 'operator', 'admin', 'agent'] as const) {
    const { headers } = await as(role);
    for (const route of own) {
      const requiredRole = requiredRoleOf(route);
      if (route.name === 'RevokeToken' || route.path.includes('wait')) continue;
      const { status } = await call(route.method, pathOf(route.path), route.method === 'GET' ? undefined : {}, headers);
      if (permits([role], requiredRole)) t.not(status, 403, `${role} ${route.name}`);
      else t.equal(status, 403, `${role} ${route.name}`);
    }
  }
});

// A task is a row in a table, and its result may have passwords and keys.
t.test('no request of a reader creates a task', async (t) => {
  const legacyAgentApi = { has: async () => true, history: async () => [], setPaused: async () => {} };
  const { call, as, addServer, tasks } = await start(t, {}, { parts: { legacyAgentApi } });
  tasks.outcome = finished({ vnc: { host: 'localhost' } });
  const creating = async (role: 'reader' | 'operator') => {
    const { headers } = await as(role);
    const names: string[] = [];
    for (const { method, name, path } of own) {
      // Operators may delete it.
      await addServer(SERVER);
      const before = tasks.created.length;
      await call(method, pathOf(path), method === 'GET' ? undefined : {}, headers);
      if (tasks.created.length > before) names.push(name);
    }
    return names;
  };
  t.same(await creating('reader'), []);
  const created = await creating('operator');
  for (const name of ['GetServerImage', 'GetVm', 'GetVmInfo', 'GetVmProcesses', 'GetVmVnc', 'NopTask'])
    t.ok(created.includes(name), `${name} creates one for an operator`);
});

t.test('a token is shown once, when it is created, and can be listed and revoked', async (t) => {
  const { call, as, logged } = await start(t);
  const { headers, uuid } = await as('admin');
  const made = await call('POST', '/tokens', { name: 'ci', role: 'reader', expires_in: 3600 }, headers);
  t.equal(made.status, 201);
  t.match(made.body, { name: 'ci', role: 'reader', created_by: /^the admin/, revoked_at: null, server_uuid: null });
  t.ok(parseToken(made.body.token));
  const secret = parseToken(made.body.token)?.secret ?? '';
  const listed = await call('GET', '/tokens', undefined, headers);
  t.notMatch(listed.text, secret);
  t.match(
    listed.body.find(({ name }: { name: string }) => name === 'ci'),
    { uuid: made.body.uuid, role: 'reader' },
  );
  t.notMatch(JSON.stringify(logged), secret, 'not in the log');
  for (const [query, names] of [
    ['name=ci&ended=false', ['ci']],
    ['limit=1', ['ci']],
    ['ended=true', []],
    [`after=${uuid}`, []],
  ] as const) {
    const { body } = await call('GET', `/tokens?${query}`, undefined, headers);
    t.same(
      body.map(({ name }: { name: string }) => name),
      names,
      query,
    );
  }
  t.match(await call('GET', `/tokens?after=${UNKNOWN_UUID}`, undefined, headers), { status: 404 });
  const taken = await call('POST', '/tokens', { name: 'ci', role: 'reader' }, headers);
  t.match(taken, { status: 409, body: { code: 'TokenNameTaken', message: /revoke it first/ } });
  t.equal((await call('DELETE', `/tokens/${made.body.uuid}`, undefined, headers)).status, 204);
  t.equal((await call('DELETE', `/tokens/${made.body.uuid}`, undefined, headers)).status, 204, 'a second time');
  t.equal((await call('DELETE', `/tokens/${UNKNOWN_UUID}`, undefined, headers)).status, 404);
});

const wrongTokens: { name: string; body: Record<string, unknown>; field: string }[] = [
  { name: 'without a name', body: { role: 'reader' }, field: 'name' },
  { name: 'with a name that holds terminal escapes', body: { name: 'a\u001b[2J', role: 'reader' }, field: 'name' },
  { name: 'with an unknown role', body: { name: 'a', role: 'root' }, field: 'role' },
  { name: 'that expires at once', body: { name: 'a', role: 'reader', expires_in: 0 }, field: 'expires_in' },
  {
    name: 'bound to a server, but not of an agent',
    body: { name: 'a', role: 'reader', server_uuid: SERVER },
    field: 'server_uuid',
  },
];
for (const { name, body, field } of wrongTokens) {
  t.test(`a token ${name} is refused with the name of the field`, async (t) => {
    const { call, as } = await start(t);
    const { headers } = await as('admin');
    matchLists(t, await call('POST', '/tokens', body, headers), { status: 400, body: { errors: [{ field }] } });
  });
}

t.test('a request whose token is revoked before its body arrives gets 401 at once and does nothing', async (t) => {
  const { port, as, addServer, tasks, tokens, audit } = await start(t);
  await addServer(SERVER);
  const { token, uuid, name } = await as('operator');
  const socket = createConnection(port, '127.0.0.1');
  socket.write(
    `POST /servers/${SERVER}/nop HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nContent-Length: 2\r\n\r\n{`,
  );
  await until(async () => (await tokens.list({ limit: 10 })).length > 0, 'the head of the request to be read');
  await new Promise((resolve) => setTimeout(resolve, 50));
  await tokens.revoke(uuid);
  const [answer] = await once(socket, 'data');
  t.match(String(answer), /^HTTP\/1.1 401 /);
  socket.destroy();
  t.equal(tasks.created.length, 0);
  const records = await until(async () => {
    const found = await audit('action=NopTask');
    return found.length > 0 ? found : undefined;
  }, 'the audit record');
  matchLists(t, records, [{ actor: name, status: 401 }]);
});

t.test('the server in the body does not replace one missing in the path', async (t) => {
  const { call, as, addServer, tasks } = await start(t);
  await addServer(SERVER);
  const { headers } = await as('operator');
  const answer = await call('POST', '/servers//nop', { server_uuid: SERVER }, headers);
  t.match(answer, { status: 409, body: { message: 'Invalid server_uuid' } });
  t.equal(tasks.created.length, 0);
});

t.test('without its database, an instance refuses changes with 503 and still answers reads', async (t) => {
  const { call, addServer, health, tasks } = await startApi(t);
  await addServer(SERVER);
  health.database = false;
  const answer = await call('POST', `/servers/${SERVER}/nop`, {});
  t.match(answer, { status: 503, body: { code: 'ServiceUnavailable' } });
  t.equal(answer.headers.get('retry-after'), '1');
  t.equal(tasks.created.length, 0);
  t.equal((await call('GET', `/servers/${SERVER}`)).status, 200);
});

t.test('the agent link requires a token of an agent that is not bound to another server', async (t) => {
  const { port, upgrades, as } = await start(t);
  const knock = async (serverUuid: string, token?: string) => {
    const authorization = token === undefined ? '' : `Authorization: Bearer ${token}\r\n`;
    const head = `GET /agents/${serverUuid}/link HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n`;
    return (await raw(port, `${head}${authorization}\r\n`, /\r\n\r\n/)).split('\r\n')[0];
  };
  t.match(await knock(SERVER), / 401 /);
  t.match(await knock(SERVER, 'cnapi_x'), / 401 /);
  t.match(await knock(SERVER, (await as('admin')).token), / 403 /);
  t.equal(upgrades.length, 0);
  t.match(await knock(SERVER, (await as('agent')).token), / 101 /);
  const bound = await as('agent', SERVER);
  t.match(await knock(SERVER.toUpperCase(), bound.token), / 101 /);
  t.match(await knock(UNKNOWN_UUID, bound.token), / 403 /);
  t.same(upgrades, [{ serverUuid: SERVER }, { serverUuid: SERVER }]);
});

t.test('only the agent of the server is known before its token is checked', async (t) => {
  const { port, arrivals, as, call } = await start(t);
  const agent = await as('agent', SERVER);
  const operator = await as('operator');
  const isKnown = async (serverUuid: string, authorization?: string) => {
    const header = authorization === undefined ? '' : `Authorization: ${authorization}\r\n`;
    const head = `GET /agents/${serverUuid}/link HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n`;
    await raw(port, `${head}${header}\r\n`, /\r\n\r\n/);
    return arrivals.pop();
  };
  t.equal(await isKnown(SERVER), false);
  t.equal(await isKnown(SERVER, `Bearer ${agent.token}`), false, 'this instance has never seen it');
  t.equal(await isKnown(SERVER, `Bearer ${agent.token}`), true);
  t.equal(await isKnown(SERVER.toUpperCase(), `Bearer ${agent.token}`), true);
  t.equal(await isKnown(SERVER, `Bearer ${agent.token.slice(0, -1)}`), false);
  t.equal(await isKnown(UNKNOWN_UUID, `Bearer ${agent.token}`), false, 'the server of another agent');
  await call('GET', '/servers', undefined, operator.headers);
  t.equal(await isKnown(SERVER, `Bearer ${operator.token}`), false, 'not an agent');
});

t.test('revoking a token ends the links and waits that it opened', async (t) => {
  const { port, call, as, tokens, addServer } = await start(t);
  await addServer(SERVER);
  const agent = await as('agent');
  const operator = await as('operator');
  const socket = createConnection(port, '127.0.0.1');
  socket.write(
    `GET /agents/${SERVER}/link HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer ${agent.token}\r\n\r\n`,
  );
  const [first] = await once(socket, 'data');
  t.match(String(first), / 101 /);
  t.equal(socket.readyState, 'open', 'the link is open');
  const ended = once(socket, 'close');
  socket.resume();
  await tokens.revoke(agent.uuid);
  await ended;
  const { body: task } = await call('POST', `/servers/${SERVER}/nop`, {}, operator.headers);
  const wait = call('GET', `/tasks/${task.id}/wait`, undefined, operator.headers);
  await tokens.revoke(operator.uuid);
  t.match(await wait, { status: 401, body: { code: 'TokenEnded', message: /revoked/ } });
});

t.test('too many requests of one source get 429 with Retry-After', async (t) => {
  const { call, as } = await start(t, { requestsPerSecond: 1 });
  const { headers } = await as('reader');
  const answers = await Promise.all(Array.from({ length: 10 }, () => call('GET', '/info', undefined, headers)));
  const limited = answers.filter(({ status }) => status === 429);
  t.ok(limited.length >= 5);
  t.match(limited[0]?.body, { code: 'TooManyRequests', message: /requestsPerSecond/ });
  t.match(limited[0]?.headers.get('retry-after'), /^\d+$/);
});

t.test('little of the body of a request over the rate limit is read', async (t) => {
  // Time stands still: neither ends the reading of the rest, nor does the rate recover.
  const { port } = await start(t, { requestsPerSecond: 20 }, { clock: new ManualClock() });
  const head = 'Host: evil.example\r\n';
  const refused = async () => (await raw(port, `GET /ping HTTP/1.1\r\n${head}Connection: close\r\n\r\n`)).split(' ')[1];
  await until(async () => (await refused()) === '429', 'the rate limit');
  const post = `POST /servers/${SERVER} HTTP/1.1\r\n${head}Content-Length: 1000000\r\n\r\n`;
  t.match(await raw(port, `${post}${'x'.repeat(100_000)}`), /^HTTP\/1.1 429 /);
});

t.test('requests refused for their headers count towards the rate limit', async (t) => {
  const { port } = await start(t, { requestsPerSecond: 1 });
  const ask = async (head: string) =>
    (await raw(port, `GET /ping HTTP/1.1\r\n${head}Connection: close\r\n\r\n`)).split(' ')[1];
  for (const head of ['Host: evil.example\r\n', 'Host: localhost\r\nExpect: everything\r\n']) {
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(head)));
    t.ok(answers.filter((status) => status === '429').length >= 5, `${head}: ${answers}`);
  }
});

t.test('too many connections of one source get 429 until some are closed', async (t) => {
  const { port } = await start(t, { connectionsPerSource: 3 });
  const sockets = Array.from({ length: 3 }, () => createConnection(port, '127.0.0.1'));
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  const ask = () => raw(port, 'GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
  t.match(await ask(), /^HTTP\/1.1 429 [\s\S]*connectionsPerSource/);
  for (const socket of sockets) socket.destroy();
  await until(async () => /^HTTP\/1.1 200 /.test(await ask()), 'room for a connection');
});

t.test('with tokens required, any IP address is a valid Host and a foreign name needs a token', async (t) => {
  const { port, as } = await start(t);
  const { token } = await as('reader');
  const ask = async (host: string, authorization = '') =>
    (await raw(port, `GET /ping HTTP/1.1\r\nHost: ${host}\r\n${authorization}Connection: close\r\n\r\n`)).split(' ')[1];
  t.equal(await ask('192.0.2.1:8080'), '200');
  t.equal(await ask('evil.example'), '403');
  t.equal(await ask('lb.example', `Authorization: Bearer ${token}\r\n`), '200', 'a browser page cannot know a token');
});
