import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { sweepTasks } from '../../../../lib/control/tasks/deadlines/deadline-store.ts';
import {
  readInheritedTasks,
  readRecordedStates,
  settleInventory,
} from '../../../../lib/control/tasks/dispatch/claim-store.ts';
import { type InventoryDecision, taskEnds } from '../../../../lib/control/tasks/store/task.ts';
import { cancelTask, readEvents } from '../../../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import {
  accept,
  backdate,
  claim,
  complete,
  create,
  migrations,
  overdueMs,
  record,
  row,
  seat,
} from '../support/task-database.ts';

const sweepTimes = { startByMs: 30_000, overdueMs };

t.test('on Postgres', async (t) => inventoryTests(t, (await freshDatabase(t, { migrations })).database));
t.test('on PGlite', async (t) => inventoryTests(t, await freshPglite(t, { migrations })));

async function inventoryTests(t: Test, db: Database): Promise<void> {
  t.test('each inventory decision is carried out once, by the session that has authority', async (t) => {
    const table: [string, InventoryDecision, object][] = [
      ['runs', { kind: 'goes-on', started: true }, { state: 'claimed', attempt: 1 }],
      ['waits', { kind: 'goes-on', started: false }, { state: 'claimed', attempt: 1, started_at: null }],
      ['again', { kind: 'next-attempt', uncertain: false }, { state: 'queued', attempt: 1, accepted_at: null }],
      ['fails', { kind: 'fail', error: taskEnds.outcomeUnknown }, { state: 'ended', error: taskEnds.outcomeUnknown }],
    ];
    for (const [name, decision, expected] of table) {
      const old = await seat(db);
      const id = await create(db, old.serverUuid);
      await claim(db, old);
      // Output of a task shows that the agent has it.
      if (decision.kind === 'next-attempt') {
        await record(db, old, id, { name: 'output', stream: 'stdout', offset: 0, text: 'x', bytes: 1 });
      }
      t.same(await readInheritedTasks(db, [old], 100), [], `${name}: not inherited by its own session`);
      const mine = await accept(db, old);
      const [task] = await readInheritedTasks(db, [mine], 100);
      t.match(
        task,
        {
          id,
          attempt: 1,
          journalId: old.journalId,
          idempotent: false,
          uncertain: false,
          wasAccepted: decision.kind === 'next-attempt',
          cancelRequested: false,
        },
        name,
      );
      if (task === undefined) throw new Error('not inherited');
      const settle = async (session: typeof mine, changes = {}) =>
        (await settleInventory(db, session.run, [{ task: { ...task, ...changes }, session, decision }])).changed;
      t.same(await settle(old), [], `${name}: not by the previous session`);
      t.same(await settle({ ...mine, run: randomUUID() }), [], `${name}: not by another run`);
      t.same(await settle(mine, { attempt: 2 }), [], `${name}: not for another attempt`);
      t.same(await settle(mine, { cancelRequested: true }), [], `${name}: not for a changed task`);
      t.same(await settle(mine), [{ id, ended: name === 'fails' }], name);
      t.match(await row(db, id), expected, name);
      t.same(await settle(mine), [], `${name}: once`);
      t.same(await readInheritedTasks(db, [mine], 100), [], `${name}: settled`);
    }
  });

  t.test('the next attempt is claimed, and a late end of the previous one is ignored', async (t) => {
    const old = await seat(db);
    const id = await create(db, old.serverUuid);
    await claim(db, old);
    const mine = await accept(db, old);
    const [task] = await readInheritedTasks(db, [mine], 100);
    if (task === undefined) throw new Error('not inherited');
    const recorded = (...ids: string[]) =>
      readRecordedStates(
        db,
        ids.map((taskId) => ({ id: taskId, serverUuid: old.serverUuid, epoch: 2 })),
      );
    matchLists(t, await recorded(id), [{ recorded: 'unsettled' }]);
    await settleInventory(db, mine.run, [{ task, session: mine, decision: { kind: 'next-attempt', uncertain: true } }]);
    matchLists(t, await recorded(id), [{ recorded: 'open' }]);
    t.same(await record(db, mine, id, complete(), 1), [], 'not while queued');
    matchLists(t, await claim(db, mine), [{ what: 'send', id, attempt: 2, epoch: 2 }]);
    t.same(await record(db, mine, id, complete(), 1), [], 'not by the first attempt');
    t.same(await record(db, mine, id, complete(), 2), [{ id, ended: true }]);
    const names = (await readEvents(db, id, { afterSeq: 0, limit: 10 }))?.events.map((event) => event.name);
    t.same(names, ['retry', 'end']);
    t.same(await recorded(id, randomUUID()), [{ serverUuid: old.serverUuid, id, recorded: 'ended' }]);
    const another = { id, serverUuid: randomUUID(), epoch: 2 };
    t.same(await readRecordedStates(db, [another]), [], 'not of another server');
  });

  t.test('a task that may have run before says so when it is not taken again', async (t) => {
    const old = await seat(db);
    const ids = [await create(db, old.serverUuid), await create(db, old.serverUuid)] as const;
    await claim(db, old);
    const mine = await accept(db, old);
    const decision: InventoryDecision = { kind: 'next-attempt', uncertain: true };
    const inherited = await readInheritedTasks(db, [mine], 100);
    await settleInventory(
      db,
      mine.run,
      inherited.map((task) => ({ task, session: mine, decision })),
    );
    await backdate(db, ids[0], 31_000);
    t.same(await sweepTasks(db, sweepTimes), [ids[0]]);
    t.match(await row(db, ids[0]), { error: taskEnds.notTakenAgain });
    t.match(await cancelTask(db, ids[1]), { isEnded: true });
    t.match(await row(db, ids[1]), { error: taskEnds.cancelledUncertain });
  });
}
