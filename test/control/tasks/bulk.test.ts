/** The same change of many tasks in one statement, as push jobs make it. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { taskEnds } from '../../../lib/control/tasks/store/task.ts';
import { cancelTask } from '../../../lib/control/tasks/store/task-store.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { claim, complete, create, migrations, record, row, seat } from './support/task-database.ts';

async function start(t: Test) {
  const { database, open } = await freshDatabase(t, { migrations });
  const firstOf = async (text: string, values: unknown[]) => {
    const { rows } = await database.query<{ answer: string[] }>(text, values);
    return rows[0]?.answer;
  };
  const cancel = (...ids: string[]) =>
    firstOf('select cnapi_cancel_tasks($1::uuid[], $2::json, $3::json) as answer', [
      ids,
      '{"code":"Stopped","message":""}',
      '{"code":"Unknown","message":""}',
    ]);
  const changeTimeouts = (timeouts: Record<string, number>) =>
    firstOf('select cnapi_change_timeouts($1::uuid[], $2::int[]) as answer', [
      Object.keys(timeouts),
      Object.values(timeouts),
    ]);
  /** Runs `body` while another transaction holds the task's row. */
  const whileLocked = (id: string, body: () => Promise<void>) =>
    open({ maxConnections: 1 }).transaction(async (holder) => {
      await holder.query('select 1 from cnapi_tasks where id = $1::uuid for update', [id]);
      await body();
    });
  return { database, cancel, changeTimeouts, whileLocked };
}

t.test('a cancel ends queued tasks, says whether they may have run, and asks for the end of others', async (t) => {
  const { database, cancel } = await start(t);
  const mine = await seat(database);
  const claimed = await create(database, mine.serverUuid);
  await claim(database, mine);
  const [queued, uncertain] = [await create(database, mine.serverUuid), await create(database, mine.serverUuid)];
  await database.query('update cnapi_tasks set uncertain = true where id = $1::uuid', [uncertain]);
  t.same(await cancel(claimed, queued, uncertain), []);
  t.match(await row(database, queued), { state: 'ended', outcome: 'failure', error: { code: 'Stopped' } });
  t.match(await row(database, uncertain), { state: 'ended', outcome: 'failure', error: { code: 'Unknown' } });
  const asked = await row(database, claimed);
  t.match(asked, { state: 'claimed', outcome: null, error: null, cancel_requested_at: Date });
  await cancel(claimed);
  t.same(await row(database, claimed), asked, 'a second request changes nothing');
});

t.test('a cancel leaves other tasks and ended ones alone, and names those whose rows are locked', async (t) => {
  const { database, cancel, whileLocked } = await start(t);
  const mine = await seat(database);
  const [ended, locked, other] = [
    await create(database, mine.serverUuid),
    await create(database, mine.serverUuid),
    await create(database, mine.serverUuid),
  ];
  await cancelTask(database, ended);
  await whileLocked(locked, async () => {
    t.same(await cancel(ended, locked), [locked]);
  });
  t.match(await row(database, locked), { state: 'queued', cancel_requested_at: null });
  t.same(await cancel(locked), []);
  t.match(await row(database, locked), { state: 'ended', error: { code: 'Stopped' } });
  t.match(await row(database, ended), { error: taskEnds.cancelled });
  t.match(await row(database, other), { state: 'queued', cancel_requested_at: null });
});

t.test('a change of time limits concerns the named tasks that have not ended', async (t) => {
  const { database, changeTimeouts, whileLocked } = await start(t);
  const mine = await seat(database);
  const timeoutMs = 1_000;
  const ids: string[] = [];
  for (let each = 0; each < 4; each += 1) ids.push(await create(database, mine.serverUuid, { timeoutMs }));
  const [one = '', ended = '', locked = '', other = ''] = ids;
  await cancelTask(database, ended);
  const timeouts = async () =>
    (await Promise.all(ids.map((id) => row(database, id)))).map(({ timeout_ms }) => timeout_ms);
  await whileLocked(locked, async () => {
    t.same(await changeTimeouts({ [one]: 2_000, [ended]: 3_000, [locked]: 4_000 }), [locked]);
  });
  t.same(await timeouts(), [2_000, 1_000, 1_000, 1_000]);
  t.same(await changeTimeouts({ [locked]: 4_000, [other]: 5_000 }), []);
  t.same(await timeouts(), [2_000, 1_000, 4_000, 5_000]);
});

t.test('one statement creates the same task for several servers', async (t) => {
  const { database } = await start(t);
  const seats = [await seat(database), await seat(database)];
  const ids = seats.map(() => randomUUID());
  await database.query('select cnapi_create_tasks($1::uuid[], $2::uuid[], $3, $4::json, 5000, false, $5, $6)', [
    ids,
    seats.map(({ serverUuid }) => serverUuid),
    'nop',
    '{"a":"é"}',
    'alice',
    'a summary',
  ]);
  const { rows } = await database.query<{ id: string }>(
    'select id, server_uuid, name, params, params_bytes, timeout_ms, idempotent, state, actor, summary from cnapi_tasks',
  );
  matchLists(
    t,
    ids.map((id) => rows.find((one) => one.id === id)),
    seats.map(({ serverUuid }) => ({
      server_uuid: serverUuid,
      name: 'nop',
      params: { a: 'é' },
      params_bytes: 10,
      timeout_ms: 5_000,
      idempotent: false,
      state: 'queued',
      actor: 'alice',
      summary: 'a summary',
    })),
  );
});

t.test('the progress of a task says who ended it, and why', async (t) => {
  const { database } = await start(t);
  const mine = await seat(database);
  const ids: string[] = [];
  for (let each = 0; each < 5; each += 1) ids.push(await create(database, mine.serverUuid));
  const [unwanted = '', started = '', succeeded = '', failed = '', waiting = ''] = ids;
  await cancelTask(database, unwanted);
  await claim(database, mine);
  for (const id of [started, succeeded, failed]) await record(database, mine, id, { name: 'started' });
  await record(database, mine, succeeded, complete({ exitCode: 3 }));
  await record(database, mine, failed, { name: 'failure', error: { code: 'Broken', message: 'x'.repeat(600) } });
  const progressOf = async (id: string) => {
    const { rows } = await database.query('select * from cnapi_progress_of_task($1::uuid, $2::text[])', [
      id,
      [JSON.stringify(taskEnds.cancelled)],
    ]);
    return rows;
  };
  const none = {
    has_ended: false,
    is_reported: false,
    outcome: null,
    error_code: null,
    message: null,
    exit_code: null,
  };
  t.same(await progressOf(waiting), [{ ...none, id: waiting, has_started: false }]);
  t.same(await progressOf(started), [{ ...none, id: started, has_started: true }]);
  const ended = { has_started: true, has_ended: true, is_reported: true };
  t.same(await progressOf(succeeded), [{ ...none, ...ended, id: succeeded, outcome: 'complete', exit_code: 3 }]);
  t.same(await progressOf(failed), [
    { ...none, ...ended, id: failed, outcome: 'failure', error_code: 'Broken', message: 'x'.repeat(500) },
  ]);
  matchLists(t, await progressOf(unwanted), [
    { has_started: false, has_ended: true, is_reported: false, outcome: 'failure', error_code: 'Cancelled' },
  ]);
  t.same(await progressOf(randomUUID()), []);
});
