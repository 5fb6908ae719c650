/**
 * What an inventory changes in a task that must run again, and in one that goes on; and what an
 * instance sends again after the database's clock was set back.
 */
import t, { type Test } from 'tap';
import {
  claimTasks,
  readInheritedTasks,
  resendTasks,
  settleInventory,
} from '../../../../lib/control/tasks/dispatch/claim-store.ts';
import { cancelTask, readEvents } from '../../../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { accept, claim, create, migrations, record, resendMs, type Seat, seat } from '../support/task-database.ts';

t.test('on Postgres', async (t) => attemptTests(t, (await freshDatabase(t, { migrations })).database));
t.test('on PGlite', async (t) => attemptTests(t, await freshPglite(t, { migrations })));

async function attemptTests(t: Test, db: Database): Promise<void> {
  const eventsOf = async (id: string) => (await readEvents(db, id, { afterSeq: 0, limit: 100 }))?.events ?? [];
  const reportsOf = async (id: string) => {
    const { rows } = await db.query(
      `select accepted_at is not null as is_accepted, started_at is not null as has_started, progress, progress_seq,
         progress_at is not null as has_progress, kept_events, kept_bytes from cnapi_tasks where id = $1::uuid`,
      [id],
    );
    return rows[0];
  };

  t.test('a task that runs again begins without what its earlier attempt reported, and others keep it', async (t) => {
    const old = await seat(db);
    const [lost, kept] = [await create(db, old.serverUuid), await create(db, old.serverUuid)];
    await claim(db, old);
    for (const id of [lost, kept]) {
      await record(db, old, id, { name: 'started' });
      await record(db, old, id, { name: 'progress', value: 10, message: undefined });
      await record(db, old, id, { name: 'output', stream: 'stdout', offset: 0, text: 'hi', bytes: 2 });
    }
    const before = await reportsOf(kept);
    t.match(before, { progress: { value: 10 }, has_progress: true, kept_events: 1, kept_bytes: 2 });
    const waiting = await create(db, old.serverUuid);
    const mine = await accept(db, old);
    await settleInventory(
      db,
      mine.run,
      (await readInheritedTasks(db, [mine], 100)).map((task) => ({
        task,
        session: mine,
        decision:
          task.id === lost ? { kind: 'next-attempt', uncertain: true } : ({ kind: 'goes-on', started: true } as const),
      })),
    );
    t.same(await reportsOf(lost), {
      is_accepted: false,
      has_started: false,
      progress: null,
      progress_seq: null,
      has_progress: false,
      kept_events: 0,
      kept_bytes: 0,
    });
    t.same(await reportsOf(kept), before);
    t.same(
      (await eventsOf(lost)).map(({ seq, name }) => [seq, name]),
      [
        [1, 'started'],
        [4, 'retry'],
      ],
    );
    t.match((await eventsOf(lost)).at(-1)?.data, { reason: /which may be run again/ });
    t.same(
      (await eventsOf(kept)).map(({ name }) => name),
      ['started', 'progress', 'output'],
    );
    t.same(
      (await claim(db, mine)).map(({ id }) => id),
      [waiting, lost],
      'it joins the end of its queue',
    );
  });

  t.test('what seems to be sent in the future is sent again: the clock was set back', async (t) => {
    const mine: Seat = await seat(db);
    const [waiting, unwanted] = [await create(db, mine.serverUuid), await create(db, mine.serverUuid)];
    await claim(db, mine);
    await record(db, mine, unwanted, { name: 'started' });
    await cancelTask(db, unwanted);
    const cancels = async () =>
      (await claimTasks(db, mine.run, { sessions: [mine], resendMs })).cancels.map(({ id }) => id);
    const resent = async () => (await resendTasks(db, [mine], resendMs)).map(({ id }) => id);
    t.same([await cancels(), await resent()], [[unwanted], []]);
    t.same([await cancels(), await resent()], [[], []], 'it is too early');
    await db.query(
      `update cnapi_tasks set sent_at = sent_at + interval '1 hour', cancel_sent_at = cancel_sent_at + interval '1 hour'
         where id = any ($1::uuid[])`,
      [[waiting, unwanted]],
    );
    t.same([await cancels(), await resent()], [[unwanted], [waiting]]);
    t.same([await cancels(), await resent()], [[], []], 'once');
  });
}
