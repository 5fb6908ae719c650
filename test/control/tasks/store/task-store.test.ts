import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { taskEnds } from '../../../../lib/control/tasks/store/task.ts';
import {
  cancelTask,
  createTask,
  deleteTasks,
  listTasks,
  MAX_QUEUED_MIB_PER_SERVER,
  readPositions,
  readTask,
} from '../../../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import {
  backdate,
  claim,
  complete,
  create,
  migrations,
  newTask,
  record,
  resendMs,
  row,
  seat,
} from '../support/task-database.ts';

t.test('on Postgres', async (t) => storeTests(t, (await freshDatabase(t, { migrations })).database));
t.test('on PGlite', async (t) => storeTests(t, await freshPglite(t, { migrations })));

async function storeTests(t: Test, db: Database): Promise<void> {
  t.test('a task is created queued and read back as requested', async (t) => {
    const { serverUuid, run } = await seat(db);
    const task = newTask(serverUuid, {
      params: { text: 'a\0b \ud800 ü', deep: { list: [1, null] } },
      requestId: 'req',
    });
    t.match(await createTask(db, task), { id: task.id, run });
    t.match(await row(db, task.id), {
      state: 'queued',
      attempt: 0,
      params: task.params,
      req_id: 'req',
      timeout_ms: 3_600_000,
    });
    t.equal(await readTask(db, randomUUID()), undefined, 'an unknown task is absent');
  });

  t.test('an idempotency key gives the same task for the same server, and another for another server', async (t) => {
    const [one, two] = [await seat(db), await seat(db)];
    const first = newTask(one.serverUuid, { idempotencyKey: 'k' });
    await createTask(db, first);
    t.match(await createTask(db, newTask(one.serverUuid, { idempotencyKey: 'k', requestHash: 'other' })), {
      id: first.id,
      requestHash: 'hash',
    });
    const elsewhere = newTask(two.serverUuid, { idempotencyKey: 'k' });
    t.match(await createTask(db, elsewhere), { id: elsewhere.id });
    await claim(db, one);
    await record(db, one, first.id, complete());
    t.match(
      await createTask(db, newTask(one.serverUuid, { idempotencyKey: 'k' })),
      { id: first.id },
      'the key finds it after its end too',
    );
  });

  t.test('a full queue takes no new task and still answers for the key of a queued one', async (t) => {
    const { serverUuid } = await seat(db);
    const first = newTask(serverUuid, { idempotencyKey: 'k' });
    t.ok(await createTask(db, first, 2));
    t.ok(await createTask(db, newTask(serverUuid, { idempotencyKey: 'l' }), 2));
    t.equal(await createTask(db, newTask(serverUuid), 2), undefined);
    t.equal(await createTask(db, newTask(serverUuid, { idempotencyKey: 'm' }), 2), undefined);
    t.match(await createTask(db, newTask(serverUuid, { idempotencyKey: 'k' }), 2), { id: first.id });
  });

  t.test('a queue is also limited in bytes, and has room again when tasks have been taken', async (t) => {
    const { serverUuid } = await seat(db);
    const first = newTask(serverUuid, { idempotencyKey: 'k', params: { text: 'x'.repeat(1000) } });
    t.ok(await createTask(db, first));
    const room = MAX_QUEUED_MIB_PER_SERVER * 1024 * 1024 - 2 * JSON.stringify(first.params).length;
    await db.query(
      `insert into cnapi_tasks (id, server_uuid, name, params, params_bytes, timeout_ms, idempotent, request_hash, created_at, queued_at)
         select gen_random_uuid(), $1::uuid, 'nop', '{}', $2::int, 1, false, 'h', cnapi_now(), cnapi_now()`,
      [serverUuid, room],
    );
    const larger = newTask(serverUuid, { params: { text: 'x'.repeat(1001) } });
    t.equal(await createTask(db, larger), undefined);
    t.ok(await createTask(db, newTask(serverUuid, { params: first.params })), 'exactly as much as there is room for');
    t.equal(await createTask(db, newTask(serverUuid)), undefined);
    t.match(await createTask(db, { ...newTask(serverUuid), idempotencyKey: 'k' }), { id: first.id }, 'a known key');
    t.ok(await createTask(db, newTask((await seat(db)).serverUuid)), 'the quota is per server');
    await cancelTask(db, first.id);
    t.ok(await createTask(db, newTask(serverUuid)));
  });

  t.test('a cancel ends a queued task, asks a claimed one to end, and ignores an ended one', async (t) => {
    const mine = await seat(db);
    const [queued, claimed] = [await create(db, mine.serverUuid), await create(db, mine.serverUuid)];
    t.match(await cancelTask(db, queued), { isEnded: true });
    t.match(await row(db, queued), { state: 'ended', outcome: 'failure', error: taskEnds.cancelled });
    t.equal(await cancelTask(db, queued), undefined);
    t.equal(await cancelTask(db, randomUUID()), undefined);
    t.same(
      (await claim(db, mine)).map((order) => order.id),
      [claimed],
      'a cancelled task is not claimed',
    );
    t.match(await cancelTask(db, claimed), { isEnded: false, run: mine.run });
    t.match(await row(db, claimed), { state: 'claimed', outcome: null });
    matchLists(t, await claim(db, mine), [{ what: 'cancel', id: claimed, attempt: 1 }], 'the cancel is forwarded');
    t.same(await claim(db, mine), [], 'once');
    for (const round of [1, 2]) {
      await backdate(db, claimed, resendMs + 1);
      matchLists(t, await claim(db, mine), [{ what: 'cancel', id: claimed }], `the cancel is repeated, round ${round}`);
    }
    await backdate(db, claimed, resendMs + 1);
    t.same(await claim(db, { ...mine, epoch: 2 }), [], 'not by another session');
    await record(db, mine, claimed, { name: 'failure', error: { code: 'Cancelled', message: 'killed' } });
    t.same(await claim(db, mine), [], 'until it has ended');
  });

  t.test('constraints of the database refuse a second end and a gap in the attempts', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid);
    await t.rejects(
      db.query('update cnapi_tasks set attempt = 2 where id = $1::uuid', [id]),
      /attempt 2 cannot follow/,
    );
    await cancelTask(db, id);
    const again = `update cnapi_tasks set state = 'queued', outcome = null where id = $1::uuid`;
    await t.rejects(db.query(again, [id]), /has ended/);
    await t.rejects(db.query(`update cnapi_tasks set outcome = 'complete' where id = $1::uuid`, [id]), /has ended/);
  });

  t.test("a server's tasks are listed newest first, and positions show how far each has come", async (t) => {
    const mine = await seat(db);
    const [first, second] = [await create(db, mine.serverUuid), await create(db, mine.serverUuid)];
    await backdate(db, first, 1000);
    t.same(
      (await listTasks(db, mine.serverUuid, { rows: 10, bytes: 1000 })).rows.map((task) => task.id),
      [second, first],
    );
    const newest = await listTasks(db, mine.serverUuid, { rows: 1, bytes: 1000 });
    t.same(
      newest.rows.map((task) => task.id),
      [second],
    );
    const rest = await listTasks(db, mine.serverUuid, { rows: 10, bytes: 1000 }, newest.next);
    t.same([rest.rows.map((task) => task.id), rest.next], [[first], undefined], 'the next read continues from there');
    const narrow = await listTasks(db, mine.serverUuid, { rows: 10, bytes: 1 });
    t.same([narrow.rows.map((task) => task.id), narrow.next?.id], [[second], second], 'one row, however large');
    await cancelTask(db, first);
    t.same(
      (await readPositions(db, [first, second, randomUUID()])).toSorted(byId),
      [
        { id: first, isEnded: true, lastSeq: 1, row: await readTask(db, first) },
        { id: second, isEnded: false, lastSeq: 0, row: undefined },
      ].toSorted(byId),
    );
  });

  t.test('a list is bounded in bytes of text, however well the database compresses them', async (t) => {
    const mine = await seat(db);
    const large = { a: 'a'.repeat(1_000_000) };
    for (let n = 0; n < 3; n += 1) await create(db, mine.serverUuid, { params: large });
    const first = await listTasks(db, mine.serverUuid, { rows: 10, bytes: 1_500_000 });
    t.equal(first.rows.length, 2, 'params');
    for (const order of await claim(db, mine)) await record(db, mine, order.id as string, complete(large));
    await db.query(`update cnapi_tasks set params_bytes = 2 where server_uuid = $1::uuid`, [mine.serverUuid]);
    const second = await listTasks(db, mine.serverUuid, { rows: 10, bytes: 1_500_000 });
    t.equal(second.rows.length, 2, 'results');
    const rest = await listTasks(db, mine.serverUuid, { rows: 10, bytes: 1_500_000 }, second.next);
    t.same([rest.rows.length, rest.next], [1, undefined]);
  });

  t.test('a position returns all of an ended task but not of a large one', async (t) => {
    const { serverUuid } = await seat(db);
    const sized = (size: number) => create(db, serverUuid, { params: { a: 'a'.repeat(size) } });
    const [small, large] = [await sized(10), await sized(10_000)];
    await Promise.all([cancelTask(db, small), cancelTask(db, large)]);
    const rows = new Map((await readPositions(db, [small, large])).map(({ id, row }) => [id, row?.id]));
    t.strictSame(
      rows,
      new Map([
        [small, small],
        [large, undefined],
      ]),
    );
  });

  t.test('old tasks are deleted with their events once they have ended', async (t) => {
    const mine = await seat(db);
    const ids = [
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
    ] as const;
    await cancelTask(db, ids[0]);
    await cancelTask(db, ids[1]);
    for (const id of [ids[0], ids[2]])
      await db.query(
        `update cnapi_tasks set ended_at = ended_at - interval '31 days', created_at = created_at - interval '31 days' where id = $1::uuid`,
        [id],
      );
    t.equal(await deleteTasks(db, 30, { tasks: 10, pieces: 0 }), 1);
    t.equal(await readTask(db, ids[0]), undefined);
    t.equal((await db.query('select 1 from cnapi_task_events where task_id = $1::uuid', [ids[0]])).rows.length, 0);
    t.ok(await readTask(db, ids[1]), 'a recent one stays');
    t.ok(await readTask(db, ids[2]), 'an unfinished one stays');
  });

  t.test('old tasks are deleted in batches bounded by tasks and by output, the oldest first', async (t) => {
    const mine = await seat(db);
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) {
      const id = await create(db, mine.serverUuid);
      await cancelTask(db, id);
      await db.query(
        `update cnapi_tasks set ended_at = cnapi_now() - $2::int * interval '1 day', kept_events = 10 where id = $1::uuid`,
        [id, 50 - n],
      );
      ids.push(id);
    }
    const left = async () => (await readPositions(db, ids)).map(({ id }) => ids.indexOf(id)).toSorted();
    t.equal(await deleteTasks(db, 30, { tasks: 2, pieces: 1000 }), 2);
    t.same(await left(), [2, 3, 4]);
    t.equal(await deleteTasks(db, 30, { tasks: 9, pieces: 15 }), 2);
    t.same(await left(), [4]);
    t.equal(await deleteTasks(db, 30, { tasks: 9, pieces: 0 }), 1, 'at least one task');
    t.equal(await deleteTasks(db, 30, { tasks: 9, pieces: 0 }), 0);
  });
}

const byId = (a: { id: string }, b: { id: string }): number => (a.id < b.id ? -1 : 1);
