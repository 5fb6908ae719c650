import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import type { Database } from '../../lib/moray/database.ts';
import { taskEnds } from '../../lib/tasks/task.ts';
import { cancelTask, createTask, deleteTasks, listTasks, readPositions, readTask } from '../../lib/tasks/task-store.ts';
import { freshPglite } from '../support/pglite.ts';
import { freshDatabase } from '../support/postgres.ts';
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
} from './support/task-database.ts';

t.test('on Postgres', async (t) => storeTests(t, (await freshDatabase(t, { migrations })).database));
t.test('on PGlite', async (t) => storeTests(t, await freshPglite(t, { migrations })));

async function storeTests(t: Test, db: Database): Promise<void> {
  t.test('a task is created queued and read back as it was asked for', async (t) => {
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
    t.equal(await readTask(db, randomUUID()), undefined, 'an unknown one is absent');
  });

  t.test('an idempotency key gives the same task for the same server, and another for another', async (t) => {
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
      'after its end too',
    );
  });

  t.test('a full queue takes no new task, and still answers for the key of one it has', async (t) => {
    const { serverUuid } = await seat(db);
    const first = newTask(serverUuid, { idempotencyKey: 'k' });
    t.ok(await createTask(db, first, 2));
    t.ok(await createTask(db, newTask(serverUuid, { idempotencyKey: 'l' }), 2));
    t.equal(await createTask(db, newTask(serverUuid), 2), undefined);
    t.equal(await createTask(db, newTask(serverUuid, { idempotencyKey: 'm' }), 2), undefined);
    t.match(await createTask(db, newTask(serverUuid, { idempotencyKey: 'k' }), 2), { id: first.id });
  });

  t.test('a cancel ends a queued task, asks a claimed one to end, and finds nothing in an ended one', async (t) => {
    const mine = await seat(db);
    const [queued, claimed] = [await create(db, mine.serverUuid), await create(db, mine.serverUuid)];
    t.match(await cancelTask(db, queued), { row: { state: 'ended', outcome: 'failure', error: taskEnds.cancelled } });
    t.equal(await cancelTask(db, queued), undefined);
    t.equal(await cancelTask(db, randomUUID()), undefined);
    t.same(
      (await claim(db, mine)).map((order) => order.id),
      [claimed],
      'what was cancelled is not claimed',
    );
    t.match(await cancelTask(db, claimed), { row: { state: 'claimed', outcome: null }, run: mine.run });
    t.match(await claim(db, mine), [{ what: 'cancel', id: claimed, attempt: 1 }], 'it is sent on');
    t.same(await claim(db, mine), [], 'once');
    for (const round of [1, 2]) {
      await backdate(db, claimed, resendMs + 1);
      t.match(await claim(db, mine), [{ what: 'cancel', id: claimed }], `again and again, ${round}`);
    }
    await backdate(db, claimed, resendMs + 1);
    t.same(await claim(db, { ...mine, epoch: 2 }), [], 'not by another session');
    await record(db, mine, claimed, { name: 'failure', error: { code: 'Cancelled', message: 'killed' } });
    t.same(await claim(db, mine), [], 'until it has ended');
  });

  t.test('the database itself refuses a second end and a gap in the attempts', async (t) => {
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

  t.test("a server's tasks are listed newest first; positions tell how far each has come", async (t) => {
    const mine = await seat(db);
    const [first, second] = [await create(db, mine.serverUuid), await create(db, mine.serverUuid)];
    await backdate(db, first, 1000);
    t.same(
      (await listTasks(db, mine.serverUuid, 10)).map((task) => task.id),
      [second, first],
    );
    t.same(
      (await listTasks(db, mine.serverUuid, 1)).map((task) => task.id),
      [second],
    );
    await cancelTask(db, first);
    t.same(
      (await readPositions(db, [first, second, randomUUID()])).toSorted(byId),
      [
        { id: first, isEnded: true, lastSeq: 1, row: await readTask(db, first) },
        { id: second, isEnded: false, lastSeq: 0, row: undefined },
      ].toSorted(byId),
    );
  });

  t.test('a position brings all of an ended task but not of a large one', async (t) => {
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

  t.test('old tasks go in batches bounded by tasks and by their output, the oldest first', async (t) => {
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
    t.equal(await deleteTasks(db, 30, { tasks: 9, pieces: 0 }), 1, 'one at least');
    t.equal(await deleteTasks(db, 30, { tasks: 9, pieces: 0 }), 0);
  });
}

const byId = (a: { id: string }, b: { id: string }): number => (a.id < b.id ? -1 : 1);
