/** Reads over many tasks, for metrics, for followers of push jobs, and after a promotion. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { readServersAtWork } from '../../../../lib/control/tasks/dispatch/claim-store.ts';
import { readTaskTimes } from '../../../../lib/control/tasks/store/task-list-store.ts';
import { cancelTask, readEventsOfMany, readLastEvents } from '../../../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { claim, complete, create, migrations, record, seat } from '../support/task-database.ts';

t.test('on Postgres', async (t) => readTests(t, (await freshDatabase(t, { migrations })).database));
t.test('on PGlite', async (t) => readTests(t, await freshPglite(t, { migrations })));

async function readTests(t: Test, db: Database): Promise<void> {
  t.test('the times of ended tasks say how long each waited and ran', async (t) => {
    const mine = await seat(db);
    const [ran, running, unstarted] = [
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
    ];
    await cancelTask(db, unstarted);
    await claim(db, mine);
    for (const id of [ran, running]) await record(db, mine, id, { name: 'started' });
    await db.query(
      `update cnapi_tasks set created_at = cnapi_now() - interval '100 s', started_at = cnapi_now() - interval '70 s'
         where id = any ($1::uuid[])`,
      [[ran, running]],
    );
    await record(db, mine, ran, complete());
    t.same(await readTaskTimes(db, [unstarted]), [{ wait: null, run: null }]);
    const [times, ...others] = await readTaskTimes(db, [ran, running]);
    t.same(others, [], 'one that still runs is left out');
    t.equal(Math.round(times?.wait ?? 0), 30);
    t.ok((times?.run ?? 0) >= 70, `it ran for ${times?.run} s`);
  });

  t.test('the new events of several tasks are read in their order, at most so many of each', async (t) => {
    const mine = await seat(db);
    const [one, other, unread] = [
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
    ];
    await claim(db, mine);
    for (const id of [one, other, unread]) {
      await record(db, mine, id, { name: 'accepted' });
      await record(db, mine, id, { name: 'started' });
      await record(db, mine, id, complete({ of: id }));
    }
    t.same(
      await readLastEvents(db, [one, other, randomUUID()]),
      new Map([
        [one, 3],
        [other, 3],
      ]),
    );
    const events = async (most: number) => {
      const asked = [
        { id: one, afterSeq: 0 },
        { id: other, afterSeq: 1 },
      ];
      const found = await readEventsOfMany(db, asked, most);
      const of = (id: string) => found.filter(({ task }) => task === id).map(({ event }) => event);
      t.equal(of(one).length + of(other).length, found.length);
      return { one: of(one), other: of(other) };
    };
    const all = await events(10);
    t.same(
      [all.one.map(({ seq, name }) => [seq, name]), all.other.map(({ seq, name }) => [seq, name])],
      [
        [
          [1, 'accepted'],
          [2, 'started'],
          [3, 'end'],
        ],
        [
          [2, 'started'],
          [3, 'end'],
        ],
      ],
    );
    t.same(all.other.at(-1)?.data, { status: 'complete', result: { of: other } });
    const first = await events(1);
    t.same([first.one.map(({ seq }) => seq), first.other.map(({ seq }) => seq)], [[1], [2]]);
  });

  t.test('a server is at work while its agent has a task that was sent over a session', async (t) => {
    const [working, waiting, posted, done] = [await seat(db), await seat(db), await seat(db), await seat(db)];
    for (const { serverUuid } of [working, posted, done]) await create(db, serverUuid);
    for (const server of [working, posted]) await claim(db, server);
    const [{ id = '' } = {}] = await claim(db, done);
    await record(db, done, id, complete());
    await create(db, waiting.serverUuid);
    await db.query('update cnapi_tasks set posted_by = $1::uuid where server_uuid = $2::uuid', [
      randomUUID(),
      posted.serverUuid,
    ]);
    const servers = [working, waiting, posted, done].map(({ serverUuid }) => serverUuid);
    t.same(await readServersAtWork(db, servers), [working.serverUuid]);
    t.same(await readServersAtWork(db, [waiting.serverUuid]), [], 'only of the servers that were asked about');
  });
}
