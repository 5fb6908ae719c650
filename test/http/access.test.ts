import { once } from 'node:events';
import { createConnection } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { parseToken, permits, type Role } from '../../lib/access/token.ts';
import { Tokens } from '../../lib/access/tokens.ts';
import { DatabaseUnavailableError } from '../../lib/errors.ts';
import { changesSomething, needOf } from '../../lib/http/route.ts';
import { routes } from '../../lib/http/routes.ts';
import type { Queryable } from '../../lib/moray/database.ts';
import { systemRandom } from '../../lib/ports/random.ts';
import { until } from '../support/until.ts';
import { type ApiOptions, raw, SERVER, STRANGER, startApi } from './support.ts';

async function start(t: Test, config: ApiOptions['config'] = {}, options: ApiOptions = {}) {
  const api = await startApi(t, { ...options, config: { access: 'tokens', ...config } });
  const tokens = new Tokens({ database: api.database.database, random: systemRandom });
  const as = async (role: Role, serverUuid?: string) => {
    const made = await tokens.create({
      name: `the ${role} ${systemRandom.uuid()}`,
      role,
      createdBy: 'the test',
      serverUuid,
    });
    return { ...made, headers: { authorization: `Bearer ${made.token}` } };
  };
  const audit = async (query = '') => {
    const { headers } = await as('admin');
    return (await api.call('GET', `/audit?${query}`, undefined, headers)).body as Record<string, unknown>[];
  };
  return { ...api, tokens, as, audit };
}

const pathOf = (path: string) => path.replace(/:\w+/g, SERVER);

t.test('which role each request takes', async (t) => {
  const taking = (need: string) => routes.filter((route) => needOf(route) === need).map(({ name }) => name);
  t.same(taking('anyone').sort(), ['GetOpenApi', 'Ping', 'Ready']);
  t.same(taking('agent').sort(), ['PostHeartbeat', 'PostStatus', 'RegisterSysinfo']);
  t.same(taking('admin').sort(), ['CreateToken', 'ListAudit', 'ListTokens', 'RevokeToken']);
  for (const route of routes.filter((one) => needOf(one) === 'reader')) t.equal(route.method, 'GET', route.name);
  for (const route of routes.filter((one) => needOf(one) === 'operator')) t.not(route.method, 'GET', route.name);
  for (const route of routes)
    t.equal(changesSomething(route), route.method !== 'GET' && needOf(route) !== 'agent', route.name);
});

t.test('without a token every request that takes a role is 401, and says how to bring one', async (t) => {
  const { call } = await start(t);
  for (const route of routes) {
    const { status, headers, body } = await call(
      route.method,
      pathOf(route.path),
      route.method === 'GET' ? undefined : {},
    );
    if (needOf(route) === 'anyone') {
      t.equal(status, 200, route.name);
      continue;
    }
    t.equal(status, 401, route.name);
    t.equal(headers.get('www-authenticate'), 'Bearer realm="cnapi"', route.name);
    t.match(body, { code: 'Unauthorized', message: /CNAPI_TOKEN/ }, route.name);
  }
});

t.test('each role may do what is its own, whatever the route', async (t) => {
  const { call, as } = await start(t);
  for (const role of ['reader', 'operator', 'admin', 'agent'] as const) {
    const { headers } = await as(role);
    for (const route of routes) {
      const need = needOf(route);
      if (route.name === 'RevokeToken' || route.path.includes('wait')) continue;
      const { status } = await call(route.method, pathOf(route.path), route.method === 'GET' ? undefined : {}, headers);
      if (permits([role], need)) t.not(status, 403, `${role} ${route.name}`);
      else t.equal(status, 403, `${role} ${route.name}`);
    }
  }
});

t.test('a token is shown when it is made, and never again', async (t) => {
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
  t.notMatch(JSON.stringify(logged), secret, 'nor in the log');
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
  t.match(await call('GET', `/tokens?after=${STRANGER}`, undefined, headers), { status: 404 });
  const taken = await call('POST', '/tokens', { name: 'ci', role: 'reader' }, headers);
  t.match(taken, { status: 409, body: { code: 'TokenNameTaken', message: /revoke it first/ } });
  t.equal((await call('DELETE', `/tokens/${made.body.uuid}`, undefined, headers)).status, 204);
  t.equal((await call('DELETE', `/tokens/${made.body.uuid}`, undefined, headers)).status, 204, 'again');
  t.equal((await call('DELETE', `/tokens/${STRANGER}`, undefined, headers)).status, 404);
});

const wrongTokens: { name: string; body: Record<string, unknown>; field: string }[] = [
  { name: 'without a name', body: { role: 'reader' }, field: 'name' },
  { name: 'with a name that could steer a terminal', body: { name: 'a\u001b[2J', role: 'reader' }, field: 'name' },
  { name: 'with a role there is not', body: { name: 'a', role: 'root' }, field: 'role' },
  { name: 'with a life of no time', body: { name: 'a', role: 'reader', expires_in: 0 }, field: 'expires_in' },
  {
    name: 'of one server, but not an agent’s',
    body: { name: 'a', role: 'reader', server_uuid: SERVER },
    field: 'server_uuid',
  },
];
for (const { name, body, field } of wrongTokens) {
  t.test(`a token ${name} is refused by its field`, async (t) => {
    const { call, as } = await start(t);
    const { headers } = await as('admin');
    t.match(await call('POST', '/tokens', body, headers), { status: 400, body: { errors: [{ field }] } });
  });
}

t.test('a change is in the audit with who, what, where and how it ended', async (t) => {
  const { call, as, addServer, audit } = await start(t);
  await addServer(SERVER);
  const { name, uuid, headers } = await as('operator');
  const made = await call('POST', `/servers/${SERVER}/nop`, {}, { ...headers, 'x-request-id': 'job-17' });
  t.equal(made.status, 200);
  const [record] = await until(async () => {
    const found = await audit('request_id=job-17');
    return found[0]?.status === 200 ? found : undefined;
  }, 'its outcome');
  t.match(record, {
    actor: name,
    token_uuid: uuid,
    roles: ['operator'],
    action: 'NopTask',
    method: 'POST',
    code: null,
  });
  t.match(record, { server_uuid: SERVER, object: made.body.id, source: '127.0.0.1', path: `/servers/${SERVER}/nop` });
  t.equal((await audit('action=GetTask')).length, 0);
});

t.test('what is refused is in the audit as well, and what reads or beats is not', async (t) => {
  const { call, as, addServer, audit } = await start(t);
  await addServer(SERVER);
  const reader = await as('reader');
  const operator = await as('operator');
  const agent = await as('agent');
  await call('POST', `/servers/${SERVER}/nop`, {});
  await call('POST', `/servers/${SERVER}/nop`, {}, reader.headers);
  await call('POST', `/servers/${STRANGER}/nop`, {}, operator.headers);
  await call('GET', '/servers', undefined, reader.headers);
  t.equal((await call('POST', `/servers/${SERVER}/events/heartbeat`, {}, agent.headers)).status, 204);
  const records = await until(async () => {
    const found = await audit();
    return found.length >= 3 && found.every(({ status }) => status !== null) ? found : undefined;
  }, 'the records');
  // What nobody let in is written a little later than what began.
  t.strictSame(
    new Map(records.map(({ actor, status, code }) => [actor, { status, code }])),
    new Map([
      ['nobody', { status: 401, code: 'Unauthorized' }],
      [reader.name, { status: 403, code: 'Forbidden' }],
      [operator.name, { status: 404, code: 'ResourceNotFound' }],
    ]),
  );
});

t.test(
  'who left before the request was refused has it in the audit as refused, not as perhaps carried out',
  async (t) => {
    const asked = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    const get = async () => {
      asked.resolve();
      await go.promise;
      return undefined;
    };
    const { url, audit } = await start(t, { access: 'open' }, { services: { servers: { get } as never } });
    const leaving = new AbortController();
    const answer = fetch(`${url}/servers/${STRANGER}/nop`, { method: 'POST', signal: leaving.signal });
    await asked.promise;
    leaving.abort();
    await t.rejects(answer);
    // The instance hears of it in a moment; if it has not, this shows nothing.
    await sleep(200);
    go.resolve();
    const record = await until(async () => (await audit()).find(({ status }) => status !== null), 'the outcome');
    t.match(record, { action: 'NopTask', status: 404, code: 'ResourceNotFound' });
  },
);

t.test('what no database can keep in a path is no defect of the audit', async (t) => {
  const { call, logged } = await startApi(t);
  t.equal((await call('POST', '/tasks/a%00b%0a/cancel', {})).status, 409);
  const records = await until(async () => {
    const { body } = await call('GET', '/audit');
    return body[0]?.status === 409 ? body : undefined;
  }, 'the record');
  t.match(records, [{ action: 'CancelTask', object: 'a?b?', path: '/tasks/a%00b%0a/cancel' }]);
  t.same(
    logged.filter(({ level }) => level === 'error'),
    [],
  );
});

t.test('a request whose body comes after its token was revoked does nothing, and is answered at once', async (t) => {
  const { port, as, addServer, tasks, tokens, audit } = await start(t);
  await addServer(SERVER);
  const { token, uuid, name } = await as('operator');
  const socket = createConnection(port, '127.0.0.1');
  socket.write(
    `POST /servers/${SERVER}/nop HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nContent-Length: 2\r\n\r\n{`,
  );
  await until(async () => (await tokens.list({ limit: 10 })).length > 0, 'the head to be there');
  await new Promise((resolve) => setTimeout(resolve, 50));
  await tokens.revoke(uuid);
  const [answer] = await once(socket, 'data');
  t.match(String(answer), /^HTTP\/1.1 401 /);
  socket.destroy();
  t.equal(tasks.created.length, 0);
  const records = await until(async () => {
    const found = await audit('action=NopTask');
    return found.length > 0 ? found : undefined;
  }, 'the record');
  t.match(records, [{ actor: name, status: 401 }]);
});

t.test('a path that lacks its server is not about the one in the body', async (t) => {
  const { call, as, addServer, tasks } = await start(t);
  await addServer(SERVER);
  const { headers } = await as('operator');
  const answer = await call('POST', '/servers//nop', { server_uuid: SERVER }, headers);
  t.match(answer, { status: 409, body: { message: 'Invalid server_uuid' } });
  t.equal(tasks.created.length, 0);
});

t.test('the task behind a command that answers with its output is in the audit', async (t) => {
  const { call, as, addServer, audit, tasks } = await start(t);
  await addServer(SERVER);
  const { headers } = await as('operator');
  tasks.outcome = {
    status: 'complete',
    history: [{ name: 'finish', timestamp: '2030-01-01T00:00:00.000Z', event: { exitCode: 0, stdout: 'hello' } }],
  };
  t.equal((await call('POST', `/servers/${SERVER}/execute`, { script: 'echo hello' }, headers)).status, 200);
  const [record] = await until(async () => {
    const found = await audit('action=CommandExecute');
    return found[0]?.status === 200 ? found : undefined;
  }, 'its outcome');
  t.equal(record?.object, tasks.ids[0]);
});

t.test(
  'who is turned away because the database is away is named in the audit, if this instance knows them',
  async (t) => {
    const link = { isCut: false };
    const cut = () => Promise.reject(new DatabaseUnavailableError(new Error('cut')));
    const accessDatabase = (database: Queryable): Queryable => ({
      query: (...statement) => (link.isCut ? cut() : database.query<never>(...statement)),
    });
    const { call, as, addServer, audit } = await start(t, {}, { accessDatabase });
    await addServer(SERVER);
    const [known, unknown] = [await as('operator'), await as('operator')];
    t.equal((await call('GET', '/servers', undefined, known.headers)).status, 200);
    link.isCut = true;
    for (const { headers } of [known, unknown])
      await until(
        async () => (await call('POST', `/servers/${SERVER}/nop`, {}, headers)).status === 503,
        'it to be away',
      );
    link.isCut = false;
    const records = await until(async () => {
      const found = await audit();
      return found.some(({ actor }) => actor === 'nobody') ? found : undefined;
    }, 'the records');
    const [stranger, mine] = records;
    t.match(stranger, { actor: 'nobody', token_uuid: null, status: 503 });
    t.match(mine, { actor: known.name, token_uuid: known.uuid, roles: ['operator'], status: 503 });
  },
);

t.test('a command that was begun when its token ended is told and kept as such, with its task', async (t) => {
  const { call, as, addServer, audit, tasks, tokens } = await start(t);
  await addServer(SERVER);
  const { headers, uuid, name } = await as('operator');
  const answer = call('POST', `/servers/${SERVER}/execute`, { script: 'sleep 60' }, headers);
  await until(() => tasks.waiting === 1, 'it to run');
  await tokens.revoke(uuid);
  const [id] = tasks.ids;
  t.match(await answer, { status: 401, body: { code: 'TokenEnded', message: new RegExp(`task ${id} goes on`) } });
  const [record] = await until(async () => {
    const found = await audit('action=CommandExecute');
    return found[0]?.status === 401 ? found : undefined;
  }, 'its outcome');
  t.match(record, { actor: name, code: 'TokenEnded', object: id });
});

t.test('an instance whose database is away changes nothing, and reads what it can', async (t) => {
  const { call, addServer, health, tasks } = await startApi(t);
  await addServer(SERVER);
  health.database = false;
  const answer = await call('POST', `/servers/${SERVER}/nop`, {});
  t.match(answer, { status: 503, body: { code: 'ServiceUnavailable' } });
  t.equal(answer.headers.get('retry-after'), '1');
  t.equal(tasks.created.length, 0);
  t.equal((await call('GET', `/servers/${SERVER}`)).status, 200);
});

t.test('where access is open changes are in the audit, too', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  await call('POST', `/servers/${SERVER}/nop`, {});
  const records = await until(async () => {
    const { body } = await call('GET', '/audit');
    return body[0]?.status === 200 ? body : undefined;
  }, 'the record');
  t.match(records, [{ actor: 'open', action: 'NopTask', server_uuid: SERVER }]);
});

t.test('an agent’s link takes a token of an agent, and of that server', async (t) => {
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
  t.match(await knock(STRANGER, bound.token), / 403 /);
  t.same(upgrades, [{ serverUuid: SERVER }, { serverUuid: SERVER }]);
});

t.test('a link and a wait that a token opened end with it', async (t) => {
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
  const ended = once(socket, 'close');
  await tokens.revoke(agent.uuid);
  await ended;
  const { body: task } = await call('POST', `/servers/${SERVER}/nop`, {}, operator.headers);
  const wait = call('GET', `/tasks/${task.id}/wait`, undefined, operator.headers);
  await tokens.revoke(operator.uuid);
  t.match(await wait, { status: 401, body: { code: 'TokenEnded', message: /revoked/ } });
});

t.test('too many requests of one source are 429 with the time to wait, and others are served', async (t) => {
  const { call, as } = await start(t, { requestsPerSecond: 1 });
  const { headers } = await as('reader');
  const answers = await Promise.all(Array.from({ length: 10 }, () => call('GET', '/info', undefined, headers)));
  const limited = answers.filter(({ status }) => status === 429);
  t.ok(limited.length >= 5);
  t.match(limited[0]?.body, { code: 'TooManyRequests', message: /requestsPerSecond/ });
  t.match(limited[0]?.headers.get('retry-after'), /^\d+$/);
});

t.test('what the front door turns away counts as well', async (t) => {
  const { port } = await start(t, { requestsPerSecond: 1 });
  const ask = async (head: string) =>
    (await raw(port, `GET /ping HTTP/1.1\r\n${head}Connection: close\r\n\r\n`)).split(' ')[1];
  for (const head of ['Host: evil.example\r\n', 'Host: localhost\r\nExpect: everything\r\n']) {
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(head)));
    t.ok(answers.filter((status) => status === '429').length >= 5, `${head}: ${answers}`);
  }
});

t.test('too many connections of one source are 429, until some of them are gone', async (t) => {
  const { port } = await start(t, { connectionsPerSource: 3 });
  const sockets = Array.from({ length: 3 }, () => createConnection(port, '127.0.0.1'));
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  const ask = () => raw(port, 'GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
  t.match(await ask(), /^HTTP\/1.1 429 [\s\S]*connectionsPerSource/);
  for (const socket of sockets) socket.destroy();
  await until(async () => /^HTTP\/1.1 200 /.test(await ask()), 'room again');
});

t.test('where tokens are asked for, any address of ours is a good Host, and a foreign name is not', async (t) => {
  const { port, as } = await start(t);
  const { token } = await as('reader');
  const ask = async (host: string, authorization = '') =>
    (await raw(port, `GET /ping HTTP/1.1\r\nHost: ${host}\r\n${authorization}Connection: close\r\n\r\n`)).split(' ')[1];
  t.equal(await ask('192.0.2.1:8080'), '200');
  t.equal(await ask('evil.example'), '403');
  t.equal(await ask('lb.example', `Authorization: Bearer ${token}\r\n`), '200', 'a token no page has');
});
