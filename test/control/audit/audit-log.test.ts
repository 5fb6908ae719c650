import { randomUUID } from 'node:crypto';
import pg from 'pg';
import t, { type Test } from 'tap';
import { AuditLog, type AuditSubject } from '../../../lib/control/audit/audit-log.ts';
import { deleteOldAudit } from '../../../lib/control/audit/audit-store.ts';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { combineStatement, SqlParameters } from '../../../lib/platform/postgres/sql-text.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const INSTANCE = '5f0a6d5c-1f3e-4f0b-9d4e-6a1c2b3d4e5f';

const fields: Omit<AuditSubject, 'key'> = {
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
const subjectWith = (some: Partial<AuditSubject> = {}): AuditSubject => ({ ...fields, key: random.uuid(), ...some });
const done = { status: 202, code: undefined, object: 'a-task' };

async function start(t: Test) {
  const { database, url } = await freshDatabase(t, { migrations: migrationsOf('moray', 'audit') });
  const clock = new ManualClock();
  const link = { isCut: false, losesAnswers: false };
  const queryable: Queryable = {
    query: async (text, values, options) => {
      const answer = link.isCut ? undefined : await database.query<never>(text, values, options);
      if (answer === undefined || link.losesAnswers) throw new DatabaseUnavailableError(new Error('cut'));
      return answer;
    },
  };
  const audit = new AuditLog({ database: queryable, cnapiUuid: INSTANCE, clock, random, log: silentLogger });
  t.teardown(() => audit.stop());
  const list = (filter = {}) => audit.list({ limit: 100, ...filter });
  return { audit, clock, database, link, list, url };
}

t.test(
  'a record that is part of the statement of the change gets its outcome, also if the answer was lost',
  async (t) => {
    const { audit, clock, database, list } = await start(t);
    const write = async (subject: AuditSubject) => {
      const parameters = new SqlParameters();
      const { text, values } = combineStatement('select 1 as one', parameters, audit.part(subject));
      await database.query(text, values);
    };
    const [answered, lost, failed] = ['answered', 'lost', 'failed'].map((requestId) => subjectWith({ requestId })) as [
      AuditSubject,
      AuditSubject,
      AuditSubject,
    ];
    await write(answered);
    await write(answered);
    await write(lost);
    matchLists(t, await list({ requestId: 'answered' }), [{ status: null, roles: ['operator'], object: null }]);
    audit.end(answered, done);
    for (const subject of [lost, failed])
      audit.refuse(subject, { status: 503, code: 'ServiceUnavailable', object: undefined }, { mayHaveBegun: true });
    clock.advance(1_000);
    await until(async () => (await list()).every(({ status }) => status !== null) && (await list()).length === 3);
    t.match(await list({ requestId: 'answered' }), { length: 1, 0: { status: 202, object: 'a-task' } });
    for (const requestId of ['lost', 'failed']) t.match(await list({ requestId }), { length: 1, 0: { status: 503 } });
  },
);

t.test('a change is recorded before it is made, and its outcome after', async (t) => {
  const { audit, clock, list } = await start(t);
  const subject = subjectWith();
  await audit.begin(subject);
  const [begun] = await list();
  matchLists(t, begun, {
    actor: 'workflow',
    roles: ['operator'],
    action: 'CreateTask',
    server_uuid: SERVER,
    status: null,
  });
  t.match(begun, { request_id: 'job-1', source: '192.0.2.1', instance: INSTANCE, object: null, ended_at: null });
  audit.end(subject, done);
  await until(async () => {
    await clock.advance(200);
    return (await list())[0]?.status === 202;
  }, 'the outcome');
  matchLists(t, await list(), [{ object: 'a-task', code: null, ended_at: Date }]);
  audit.end(subject, { status: 500, code: 'x', object: undefined });
  await clock.advance(200);
  await audit.stop();
  t.equal((await list())[0]?.status, 202, 'the first outcome stays');
});

t.test('a refused request is recorded with its outcome', async (t) => {
  const { audit, list } = await start(t);
  audit.refuse(subjectWith({ actor: 'nobody', roles: [] }), { status: 401, code: 'Unauthorized', object: undefined });
  await audit.stop();
  matchLists(t, await list(), [{ actor: 'nobody', roles: [], status: 401, code: 'Unauthorized' }]);
});

t.test('refusals are recorded up to a limit per source, ten times higher per token or signer', async (t) => {
  const { audit, list } = await start(t);
  const refusal = { status: 401, code: 'Unauthorized', object: undefined };
  for (let each = 0; each < 100; each++) audit.refuse(subjectWith({ actor: 'nobody' }), refusal);
  audit.refuse(subjectWith({ actor: 'nobody', source: '192.0.2.2' }), refusal);
  const tokenUuid = SERVER;
  for (let each = 0; each < 700; each++) audit.refuse(subjectWith({ actor: 'reader', tokenUuid }), refusal);
  audit.refuse(subjectWith({ actor: 'other', tokenUuid: randomUUID() }), refusal);
  const principalUuid = randomUUID();
  for (let each = 0; each < 200; each++) audit.refuse(subjectWith({ actor: 'client', principalUuid }), refusal);
  await audit.stop();
  t.equal((await list({ actor: 'nobody' })).length, 61);
  t.equal((await list({ actor: 'reader', limit: 1000 })).length, 600);
  t.equal((await list({ actor: 'other', limit: 1000 })).length, 1);
  t.equal((await list({ actor: 'client', limit: 1000 })).length, 200);
  t.equal(audit.unkept, 140);
});

t.test('an IPv6 /64 counts as one source', async (t) => {
  const { audit, list } = await start(t);
  const refusal = { status: 401, code: 'Unauthorized', object: undefined };
  for (let each = 0; each < 100; each++)
    audit.refuse(subjectWith({ actor: 'nobody', source: `2001:db8::1:${each}` }), refusal);
  audit.refuse(subjectWith({ actor: 'nobody', source: '2001:db8:0:1::1' }), refusal);
  await audit.stop();
  t.equal((await list()).length, 61);
});

t.test('a begin whose answer was lost has one record, with the refusal that its caller got', async (t) => {
  const { audit, clock, database, link, list } = await start(t);
  const [lost, other] = [subjectWith(), subjectWith()];
  await audit.begin(other);
  link.losesAnswers = true;
  await t.rejects(audit.begin(lost), DatabaseUnavailableError);
  // However many of these there are. Callers without a token never get this far.
  for (let each = 0; each < 60; each++) audit.refuse(subjectWith(), { status: 401, code: 'x', object: undefined });
  audit.refuse(lost, { status: 503, code: 'ServiceUnavailable', object: undefined }, { mayHaveBegun: true });
  for (let each = 0; each < 3; each++) await clock.advance(200);
  link.losesAnswers = false;
  await audit.stop();
  const { rows } = await database.query<{ key: string; status: number }>(
    'select key, status from cnapi_audit where status is distinct from 401',
  );
  t.same(
    new Map(rows.map(({ key, status }) => [key, status])),
    new Map([
      [lost.key, 503],
      [other.key, null],
    ]),
  );
  t.equal((await list()).length, 62, 'no refusal is recorded twice, although answers were lost');
});

t.test('an outcome goes only to its own record, even if a restored database reuses the id', async (t) => {
  const { audit, database, list } = await start(t);
  const mine = subjectWith();
  await audit.begin(mine);
  const [{ id = 0 } = {}] = await list();
  // A promoted standby may lack the record. Its id then goes to the next one, of the same caller.
  await database.query('delete from cnapi_audit');
  await database.query(`select setval(pg_get_serial_sequence('cnapi_audit', 'id'), $1::bigint, false)`, [id]);
  await audit.begin(subjectWith());
  audit.end(mine, done);
  await audit.stop();
  matchLists(t, await list(), [{ id, status: null, object: null }]);
});

t.test('without the database nothing begins, and outcomes wait for it', async (t) => {
  const { audit, clock, link, list } = await start(t);
  const subject = subjectWith();
  await audit.begin(subject);
  link.isCut = true;
  await t.rejects(audit.begin(subjectWith()), DatabaseUnavailableError);
  audit.end(subject, done);
  audit.refuse(subjectWith(), { status: 403, code: 'Forbidden', object: undefined });
  for (let each = 0; each < 5; each++) await clock.advance(200);
  link.isCut = false;
  await until(async () => {
    await clock.advance(200);
    return (await list()).every(({ status }) => status !== null) && (await list()).length === 2;
  }, 'both outcomes');
  t.same((await list()).map(({ status }) => status).sort(), [202, 403]);
  t.equal(audit.dropped, 0);
});

t.test('an outcome whose record is locked waits and delays no other', async (t) => {
  const { audit, clock, database, list, url } = await start(t);
  const subjects = Array.from({ length: 20 }, () => subjectWith());
  await Promise.all(subjects.map((subject) => audit.begin(subject)));
  const [locked, ...others] = subjects.map(({ key }) => key);
  const isWritten = async (keys: readonly (string | undefined)[]) => {
    await clock.advance(200);
    const { rows } = await database.query<{ key: string }>('select key from cnapi_audit where status is not null');
    return keys.every((key) => rows.some((row) => row.key === key));
  };
  const holder = new pg.Client({ connectionString: url });
  await holder.connect();
  t.teardown(() => holder.end());
  await holder.query('begin');
  await holder.query('select 1 from cnapi_audit where key = $1::uuid for update', [locked]);
  for (const subject of subjects) audit.end(subject, done);
  const refused = subjectWith();
  audit.refuse(refused, { status: 403, code: 'Forbidden', object: undefined });
  await until(() => isWritten([...others, refused.key]), 'the other outcomes');
  t.equal(await isWritten([locked]), false);
  await holder.query('commit');
  await until(() => isWritten([locked]), 'the outcome that was locked');
  t.equal((await list()).length, 21);
});

t.test('a record that the database refuses is dropped, and the others are written', async (t) => {
  const { audit, list } = await start(t);
  const refused = { status: 401, code: 'Unauthorized', object: undefined };
  for (const path of ['/a', '/b\0', '/c']) audit.refuse(subjectWith({ path }), refused);
  await audit.stop();
  t.same((await list()).map(({ path, status }) => [path, status]).sort(), [
    ['/a', 401],
    ['/c', 401],
  ]);
  t.equal(audit.dropped, 1);
});

t.test('a hundred concurrent records are each written once, in few statements', async (t) => {
  const { audit, list } = await start(t);
  const names = Array.from({ length: 100 }, (_, each) => `job-${each}`);
  await Promise.all(names.map((requestId) => audit.begin(subjectWith({ requestId }))));
  t.same((await list()).map(({ request_id }) => request_id).sort(), names.sort());
});

t.test('records can be filtered by actor, action, object and time, and paged', async (t) => {
  const { audit, database, list } = await start(t);
  for (const actor of ['a', 'b', 'a']) await audit.begin(subjectWith({ actor }));
  const ids = (await list()).map(({ id }) => id).reverse();
  const other = { action: 'DeleteServer', serverUuid: undefined, object: 'x1', requestId: 'r' };
  await audit.begin(subjectWith({ actor: 'c', ...other }));
  t.same(
    (await list({ actor: 'a' })).map(({ id }) => id),
    [ids[2], ids[0]],
    'newest first',
  );
  t.same(
    (await list({ limit: 2, before: ids[2] })).map(({ id }) => id),
    [ids[1], ids[0]],
  );
  for (const filter of [{ action: 'DeleteServer' }, { object: 'x1' }, { objectPrefix: 'x' }, { requestId: 'r' }])
    t.same(
      (await list(filter)).map(({ actor }) => actor),
      ['c'],
      JSON.stringify(filter),
    );
  t.equal((await list({ serverUuid: SERVER })).length, 3);
  const { rows } = await database.query<{ indexdef: string }>(
    `select indexdef from pg_indexes where tablename = 'cnapi_audit' and indexdef ~ '\\((object, id|request_id, key)\\)'`,
  );
  t.equal(rows.length, 2, 'an index for request id and object');
  await database.query(`update cnapi_audit set time = '2020-01-02T00:00:00Z' where id = $1`, [ids[0]]);
  t.same(
    (await list({ until: '2021-01-01T00:00:00Z' })).map(({ id }) => id),
    [ids[0]],
  );
  t.equal((await list({ since: '2021-01-01T00:00:00Z' })).length, 3);
  t.equal(await deleteOldAudit(database, 400, 10), 1);
  t.equal((await list()).length, 3);
});

t.test('a page of large records is short, and the next one continues after it', async (t) => {
  const { audit, database, list } = await start(t);
  for (let each = 0; each < 5; each += 1) await audit.begin(subjectWith({ requestId: `r-${each}` }));
  const enlarge = `update cnapi_audit set details = jsonb_build_object('text', repeat('x', 100_000)) where request_id = $1`;
  for (const requestId of ['r-1', 'r-2']) await database.query(enlarge, [requestId]);
  const pages = async (filter: object) => {
    const all: string[][] = [];
    for (let before: number | undefined; ; ) {
      const page = await list({ ...filter, before });
      if (page.length === 0) return all;
      all.push(page.map(({ request_id }) => request_id));
      before = page.at(-1)?.id;
    }
  };
  for (const filter of [{}, { serverUuid: SERVER }]) {
    t.same(await pages({ ...filter, bytes: 50_000 }), [['r-4', 'r-3', 'r-2'], ['r-1'], ['r-0']]);
    t.same(await pages({ ...filter, bytes: 1 }), [['r-4'], ['r-3'], ['r-2'], ['r-1'], ['r-0']], 'one at least');
    t.same(await pages(filter), [['r-4', 'r-3', 'r-2', 'r-1', 'r-0']]);
  }
});
