import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { freshZone } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import type { FreshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { finished } from './stand-ins.ts';
import { SERVER, setStatus, startApi, UNKNOWN_UUID } from './support.ts';
import { startWithTokens as start } from './with-tokens.ts';

t.test('the audit records the actor, action, object, source and outcome of a change', async (t) => {
  const { call, as, addServer, audit } = await start(t);
  await addServer(SERVER);
  const { name, uuid, headers } = await as('operator');
  const made = await call('POST', `/servers/${SERVER}/nop`, {}, { ...headers, 'x-request-id': 'job-17' });
  t.equal(made.status, 200);
  const [record] = await until(async () => {
    const found = await audit('request_id=job-17');
    return found[0]?.status === 200 ? found : undefined;
  }, 'its outcome');
  matchLists(t, record, {
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

t.test('the audit records refused requests, but neither reads nor heartbeats', async (t) => {
  const { call, as, addServer, audit } = await start(t);
  await addServer(SERVER);
  const reader = await as('reader');
  const operator = await as('operator');
  const agent = await as('agent');
  await call('POST', `/servers/${SERVER}/nop`, {});
  await call('POST', `/servers/${SERVER}/nop`, {}, reader.headers);
  await call('POST', `/servers/${UNKNOWN_UUID}/nop`, {}, operator.headers);
  await call('GET', '/servers', undefined, reader.headers);
  t.equal((await call('POST', `/servers/${SERVER}/events/heartbeat`, {}, agent.headers)).status, 204);
  const records = await until(async () => {
    const found = await audit();
    return found.length >= 3 && found.every(({ status }) => status !== null) ? found : undefined;
  }, 'the audit records');
  // Records of refused requests are written a little later than those of accepted ones.
  t.strictSame(
    new Map(records.map(({ actor, status, code }) => [actor, { status, code }])),
    new Map([
      ['nobody', { status: 401, code: 'Unauthorized' }],
      [reader.name, { status: 403, code: 'Forbidden' }],
      [operator.name, { status: 404, code: 'ResourceNotFound' }],
    ]),
  );
});

t.test('the audit records no 429, whichever limit it is about', async (t) => {
  const { call, as, addServer, audit, limits } = await start(
    t,
    { requestsPerSecond: 1_000 },
    { clock: { ...systemClock, now: () => 0 } },
  );
  await addServer(SERVER);
  const { headers } = await as('operator');
  const nop = (body: object, id: string) =>
    call('POST', `/servers/${SERVER}/nop`, body, { ...headers, 'x-request-id': id });
  const wide = { filler: 'x'.repeat(2_000) };
  limits.bodies.charge({ actor: undefined, address: '127.0.0.1' }, { bytes: 1024 * 1024 * 1024, values: 0 }, 0);
  t.match(await nop(wide, 'limited'), { status: 429, body: { code: 'TooManyRequests' } });
  t.equal(
    (await call('POST', `/servers/${UNKNOWN_UUID}/nop`, {}, { ...headers, 'x-request-id': 'later' })).status,
    404,
  );
  await until(async () => (await audit('request_id=later')).length === 1, 'a later refusal to be recorded');
  t.same(await audit('request_id=limited'), []);
});

t.test('when the caller leaves before a refusal, the audit still records the refusal', async (t) => {
  const asked = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  const get = async () => {
    asked.resolve();
    await go.promise;
    return undefined;
  };
  const { url, audit } = await start(t, { access: 'open' }, { parts: { servers: { get } as never } });
  const leaving = new AbortController();
  const answer = fetch(`${url}/servers/${UNKNOWN_UUID}/nop`, { method: 'POST', signal: leaving.signal });
  await asked.promise;
  leaving.abort();
  await t.rejects(answer);
  // The instance notices the lost caller within a moment. If it does not, this test shows
  // nothing.
  await sleep(200);
  go.resolve();
  const record = await until(async () => (await audit()).find(({ status }) => status !== null), 'the outcome');
  t.match(record, { action: 'NopTask', status: 404, code: 'ResourceNotFound' });
});

t.test('a refusal by the statement that writes the record has its outcome, and counts to the limit', async (t) => {
  const { call } = await startApi(t);
  const create = async () => (await call('POST', '/tokens', { name: 'taken', role: 'reader' })).status;
  t.equal(await create(), 201);
  for (let each = 0; each < 70; each += 1) t.equal(await create(), 409);
  // Refused before any statement, and beyond the limit of 60.
  t.equal((await call('POST', '/tokens', { name: 'another', role: 'none' })).status, 400);
  const records = async () =>
    (await call('GET', '/audit?action=CreateToken&limit=1000')).body as { status: number | null }[];
  const all = await until(async () => {
    const found = await records();
    return found.length > 0 && found.every(({ status }) => status !== null) ? found : undefined;
  }, 'each record to have its outcome');
  t.same(all.map(({ status }) => status).toSorted(), [201, ...Array.from({ length: 70 }, () => 409)]);
});

t.test('characters that the database cannot store are replaced in the audit', async (t) => {
  const { call, logged } = await startApi(t);
  t.equal((await call('POST', '/tasks/a%00b%0a/cancel', {})).status, 409);
  const records = await until(async () => {
    const { body } = await call('GET', '/audit');
    return body[0]?.status === 409 ? body : undefined;
  }, 'the audit record');
  matchLists(t, records, [{ action: 'CancelTask', object: 'a?b?', path: '/tasks/a%00b%0a/cancel' }]);
  t.same(
    logged.filter(({ level }) => level === 'error'),
    [],
  );
});

t.test('the audit names the task of a synchronous command', async (t) => {
  const { call, as, addServer, audit, tasks } = await start(t);
  await addServer(SERVER);
  const { headers } = await as('operator');
  tasks.outcome = finished({ exitCode: 0, stdout: 'hello' });
  t.equal((await call('POST', `/servers/${SERVER}/execute`, { script: 'echo hello' }, headers)).status, 200);
  const [record] = await until(async () => {
    const found = await audit('action=CommandExecute');
    return found[0]?.status === 200 ? found : undefined;
  }, 'its outcome');
  t.equal(record?.object, tasks.ids[0]);
});

t.test('a request refused for lack of the database is audited with its caller, if known', async (t) => {
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
    await until(async () => (await call('POST', `/servers/${SERVER}/nop`, {}, headers)).status === 503, 'the 503');
  link.isCut = false;
  const records = await until(async () => {
    const found = await audit();
    return found.some(({ actor }) => actor === 'nobody') ? found : undefined;
  }, 'the audit records');
  const [unknownCaller, mine] = records;
  t.match(unknownCaller, { actor: 'nobody', token_uuid: null, status: 503 });
  matchLists(t, mine, { actor: known.name, token_uuid: known.uuid, roles: ['operator'], status: 503 });
});

t.test('a command whose token is revoked while it runs answers and audits TokenEnded with its task', async (t) => {
  const { call, as, addServer, audit, tasks, tokens } = await start(t);
  await addServer(SERVER);
  const { headers, uuid, name } = await as('operator');
  const answer = call('POST', `/servers/${SERVER}/execute`, { script: 'sleep 60' }, headers);
  await until(() => tasks.waiting === 1, 'the command to run');
  await tokens.revoke(uuid);
  const [id] = tasks.ids;
  t.match(await answer, { status: 401, body: { code: 'TokenEnded', message: new RegExp(`task ${id} continues`) } });
  const [record] = await until(async () => {
    const found = await audit('action=CommandExecute');
    return found[0]?.status === 401 ? found : undefined;
  }, 'its outcome');
  t.match(record, { actor: name, code: 'TokenEnded', object: id });
});

t.test('changes are audited when access is open', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  await call('POST', `/servers/${SERVER}/nop`, {});
  const records = await until(async () => {
    const { body } = await call('GET', '/audit');
    return body[0]?.status === 200 ? body : undefined;
  }, 'the audit record');
  matchLists(t, records, [{ actor: 'open', action: 'NopTask', server_uuid: SERVER }]);
});

t.test('a time that does not exist, or that the database cannot store, is a 400 that names the field', async (t) => {
  const { call, as } = await start(t);
  const { headers } = await as('admin');
  for (const time of [
    '0000-01-01',
    '-000001-01-01',
    '9999-12-31T23:59:59-01:00',
    '+010000-01-01',
    '2030-02-31x',
    '2030-13-01',
    '2030-02-30',
    '2030-02-30T00:00:00Z',
    '2030-01-01 00:00:00Z',
    // Without an offset.
    '2030-01-01T00:00:00',
  ])
    for (const field of ['since', 'until'])
      matchLists(
        t,
        await call('GET', `/audit?${field}=${encodeURIComponent(time)}`, undefined, headers),
        { status: 400, body: { code: 'InvalidParameters', errors: [{ field }] } },
        `${field} ${time}`,
      );
  for (const time of ['0001-01-01', '0001-01-01T00:00:00Z', '9999-12-31T23:59:59.999Z', '2030-01-01T00:00:00+02:00'])
    for (const field of ['since', 'until'])
      t.equal((await call('GET', `/audit?${field}=${encodeURIComponent(time)}`, undefined, headers)).status, 200, time);
});

t.test('a task, ticket or token and the audit record of its creation are one commit', async (t) => {
  const zone = await freshZone(t);
  const { post } = await zone.startApp();
  const { database } = zone;
  t.equal((await post(`/servers/${SERVER}/sysinfo`, { sysinfo: { UUID: SERVER } })).status, 200);
  await setStatus({ database } as FreshDatabase, SERVER, 'running', 7);
  await database.query(`
    create table commits (wrote text, xid text);
    create function note_commit() returns trigger language plpgsql as
      'begin insert into commits values (tg_table_name, pg_current_xact_id()::text); return null; end'`);
  for (const table of ['cnapi_tasks', 'cnapi_waitlist_tickets', 'cnapi_tokens', 'cnapi_audit'])
    await database.query(`create trigger note after insert on ${table} execute function note_commit()`);
  const ticket = { scope: 'vm', id: 'x', expires_in: 60 };
  const key = { 'idempotency-key': 'once' };
  const rows = [
    ['cnapi_tasks', `/servers/${SERVER}/tasks`, { task: 'nop' }, {}],
    ['cnapi_waitlist_tickets', `/servers/${SERVER}/tickets`, ticket, {}],
    ['cnapi_waitlist_tickets', `/servers/${SERVER}/tickets`, ticket, key],
    ['cnapi_tokens', '/tokens', { name: 'a', role: 'reader' }, {}],
  ] as const;
  for (const [table, path, body, headers] of rows) {
    const answer = await post(path, body, headers);
    t.ok(answer.status === 202 || answer.status === 201, `${path}: ${answer.status}`);
    const commits = await database.query<{ tables: string[] }>(
      'select array_agg(wrote order by wrote) as tables from commits group by xid',
    );
    t.same(commits.rows, [{ tables: ['cnapi_audit', table].sort() }], path);
    await database.query('truncate commits');
  }
});

t.test('the audit can be read however large its records are', async (t) => {
  const { as, call, database } = await start(t, { answerMemoryPerCallerMiB: 1 });
  const { headers } = await as('admin');
  await database.database.query(
    `insert into cnapi_audit (key, actor, roles, action, method, path, request_id, source, instance, details)
     select gen_random_uuid(), 'a', '{}', 'Large', 'POST', '/', n::text, '', gen_random_uuid(),
       jsonb_build_object('text', repeat('x', case when n = 5 then 12_000_000 else 1_500_000 end))
     from generate_series(1, 12) n`,
  );
  const sizes: number[] = [];
  const found: string[] = [];
  for (let before = ''; ; ) {
    const path = `/audit?action=Large&limit=1000${before}`;
    const { status, body, text } = await call('GET', path, undefined, headers);
    t.equal(status, 200);
    if (body.length === 0) break;
    sizes.push(text.length);
    found.push(...body.map(({ request_id }: { request_id: string }) => request_id));
    before = `&before=${body.at(-1).id}`;
  }
  t.same(found, ['12', '11', '10', '9', '8', '7', '6', '5', '4', '3', '2', '1']);
  t.ok(sizes.length > 3 && Math.max(...sizes) < 16 * 1024 * 1024, `pages of ${sizes} bytes`);
});

t.test('a path with escaped letters needs the role of its route, and is recorded as that', async (t) => {
  const { url, addServer, as, audit } = await start(t);
  await addServer(SERVER);
  const statusOf = async (method: string, path: string, headers: Record<string, string> = {}) => {
    const response = await fetch(`${url}${path}`, { method, headers });
    await response.text();
    return response.status;
  };
  const [reader, operator, agent] = [await as('reader'), await as('operator'), await as('agent')];
  for (const path of ['/tokens', '/%74okens', '/%74%6fkens']) {
    t.equal(await statusOf('GET', path), 401, `${path} without a token`);
    t.equal(await statusOf('GET', path, reader.headers), 403, path);
  }
  const nop = `/%73ervers/${SERVER}/%6eop`;
  for (const { headers } of [reader, agent]) t.equal(await statusOf('POST', nop, headers), 403);
  t.equal(await statusOf('POST', nop, operator.headers), 200);
  const records = await until(async () => {
    const found = await audit('action=NopTask');
    return found.length === 3 && found.every(({ status }) => status !== null) ? found : undefined;
  }, 'the records');
  t.same(new Set(records.map(({ server_uuid, path }) => `${server_uuid} ${path}`)), new Set([`${SERVER} ${nop}`]));
});
