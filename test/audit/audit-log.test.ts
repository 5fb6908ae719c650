import t, { type Test } from 'tap';
import { AuditLog, type AuditSubject } from '../../lib/audit/audit-log.ts';
import { auditMigrations } from '../../lib/audit/audit-schema.ts';
import { forgetAudit } from '../../lib/audit/audit-store.ts';
import { DatabaseUnavailableError } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import type { Queryable } from '../../lib/moray/database.ts';
import { morayMigrations } from '../../lib/moray/moray-schema.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { freshDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const INSTANCE = '5f0a6d5c-1f3e-4f0b-9d4e-6a1c2b3d4e5f';

const subject: AuditSubject = {
  actor: 'workflow',
  roles: ['operator'],
  tokenUuid: undefined,
  action: 'CreateTask',
  method: 'POST',
  path: `/servers/${SERVER}/tasks`,
  serverUuid: SERVER,
  object: undefined,
  requestId: 'job-1',
  source: '192.0.2.1',
};
const done = { status: 202, code: undefined, object: 'a-task' };

async function start(t: Test) {
  const { database } = await freshDatabase(t, { migrations: [...morayMigrations, ...auditMigrations] });
  const clock = new ManualClock();
  const link = { isCut: false };
  const queryable: Queryable = {
    query: (text, values, options) =>
      link.isCut
        ? Promise.reject(new DatabaseUnavailableError(new Error('cut')))
        : database.query(text, values, options),
  };
  const audit = new AuditLog({ database: queryable, cnapiUuid: INSTANCE, clock, log: silentLogger });
  audit.start();
  t.teardown(() => audit.stop());
  const list = (filter = {}) => audit.list({ limit: 100, ...filter });
  return { audit, clock, database, link, list };
}

t.test('a change has its record before it is made, and its outcome after', async (t) => {
  const { audit, clock, list } = await start(t);
  const id = await audit.begin(subject);
  const [begun] = await list();
  t.match(begun, {
    id,
    actor: 'workflow',
    roles: ['operator'],
    action: 'CreateTask',
    server_uuid: SERVER,
    status: null,
  });
  t.match(begun, { request_id: 'job-1', source: '192.0.2.1', instance: INSTANCE, object: null, ended_at: null });
  audit.end(id, done);
  await until(async () => {
    await clock.advance(200);
    return (await list())[0]?.status === 202;
  }, 'the outcome');
  t.match(await list(), [{ object: 'a-task', code: null, ended_at: /^\d{4}-/ }]);
  audit.end(id, { status: 500, code: 'x', object: undefined });
  await clock.advance(200);
  await audit.stop();
  t.equal((await list())[0]?.status, 202, 'the first outcome stays');
});

t.test('what was turned away is kept with its outcome', async (t) => {
  const { audit, list } = await start(t);
  audit.refuse({ ...subject, actor: 'nobody', roles: [] }, { status: 401, code: 'Unauthorized', object: undefined });
  await audit.stop();
  t.match(await list(), [{ actor: 'nobody', roles: [], status: 401, code: 'Unauthorized' }]);
});

t.test('what strangers are refused is kept so often and no more; whoever has a token is kept each time', async (t) => {
  const { audit, list } = await start(t);
  const refusal = { status: 401, code: 'Unauthorized', object: undefined };
  for (let each = 0; each < 100; each++) audit.refuse({ ...subject, actor: 'nobody' }, refusal);
  audit.refuse({ ...subject, actor: 'nobody', source: '192.0.2.2' }, refusal);
  const tokenUuid = SERVER;
  for (let each = 0; each < 30; each++) audit.refuse({ ...subject, actor: 'reader', tokenUuid }, refusal);
  await audit.stop();
  t.equal((await list({ actor: 'nobody' })).length, 61);
  t.equal((await list({ actor: 'reader' })).length, 30);
  t.equal(audit.unkept, 40);
});

t.test('with the database away nothing begins, and outcomes wait for it', async (t) => {
  const { audit, clock, link, list } = await start(t);
  const id = await audit.begin(subject);
  link.isCut = true;
  await t.rejects(audit.begin(subject), DatabaseUnavailableError);
  audit.end(id, done);
  audit.refuse(subject, { status: 403, code: 'Forbidden', object: undefined });
  for (let each = 0; each < 5; each++) await clock.advance(200);
  link.isCut = false;
  await until(async () => {
    await clock.advance(200);
    return (await list()).every(({ status }) => status !== null) && (await list()).length === 2;
  }, 'both outcomes');
  t.same((await list()).map(({ status }) => status).sort(), [202, 403]);
  t.equal(audit.dropped, 0);
});

t.test('a record that the database refuses is let go, and none of its neighbours with it', async (t) => {
  const { audit, list } = await start(t);
  const refused = { status: 401, code: 'Unauthorized', object: undefined };
  for (const path of ['/a', '/b\0', '/c']) audit.refuse({ ...subject, path }, refused);
  await audit.stop();
  t.same((await list()).map(({ path, status }) => [path, status]).sort(), [
    ['/a', 401],
    ['/c', 401],
  ]);
  t.equal(audit.dropped, 1);
});

t.test('a hundred at once are written in few statements, each with its own id', async (t) => {
  const { audit, list } = await start(t);
  const ids = await Promise.all(
    Array.from({ length: 100 }, (_, each) => audit.begin({ ...subject, requestId: `job-${each}` })),
  );
  t.equal(new Set(ids).size, 100);
  const stored = new Map((await list()).map(({ id, request_id }) => [id, request_id]));
  for (const [each, id] of ids.entries()) t.equal(stored.get(id), `job-${each}`);
});

t.test('records are found by who, what, where and when, and paged', async (t) => {
  const { audit, database, list } = await start(t);
  const ids = [];
  for (const actor of ['a', 'b', 'a']) ids.push(await audit.begin({ ...subject, actor }));
  await audit.begin({
    ...subject,
    actor: 'c',
    action: 'DeleteServer',
    serverUuid: undefined,
    object: 'x',
    requestId: 'r',
  });
  t.same(
    (await list({ actor: 'a' })).map(({ id }) => id),
    [ids[2], ids[0]],
    'newest first',
  );
  t.same(
    (await list({ limit: 2, before: ids[2] })).map(({ id }) => id),
    [ids[1], ids[0]],
  );
  for (const filter of [{ action: 'DeleteServer' }, { object: 'x' }, { requestId: 'r' }])
    t.same(
      (await list(filter)).map(({ actor }) => actor),
      ['c'],
      JSON.stringify(filter),
    );
  t.equal((await list({ serverUuid: SERVER })).length, 3);
  await database.query(`update cnapi_audit set time = '2020-01-02T00:00:00Z' where id = $1`, [ids[0]]);
  t.same(
    (await list({ until: '2021-01-01T00:00:00Z' })).map(({ id }) => id),
    [ids[0]],
  );
  t.equal((await list({ since: '2021-01-01T00:00:00Z' })).length, 3);
  t.equal(await forgetAudit(database, 400, 10), 1);
  t.equal((await list()).length, 3);
});
