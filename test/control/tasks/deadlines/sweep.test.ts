/**
 * When an instance may end tasks that no agent takes or reports: only those that had their time
 * while the database answered.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import {
  advanceTicks,
  recordFullServers,
  sweepTasks,
  takeOverdue,
} from '../../../../lib/control/tasks/deadlines/deadline-store.ts';
import { claimTasks } from '../../../../lib/control/tasks/dispatch/claim-store.ts';
import { MAX_HELD_BYTES } from '../../../../lib/control/tasks/store/task-limits.ts';
import { Sweeper } from '../../../../lib/control/tasks/sweeper.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { noPosts } from '../support/no-posts.ts';
import {
  backdate,
  claim,
  create,
  migrations,
  record,
  resendMs,
  row,
  type Seat,
  seat,
} from '../support/task-database.ts';

const config = { taskStartByMs: 30_000, taskOverdueMs: 60_000, slowPollMs: 30_000 };
const sweepTimes = { startByMs: 30_000, overdueMs: 60_000 };

/** A sweeper whose polls a test answers, at `now` of its clock. */
function start() {
  const world = {
    isAway: false,
    /** A part of the text of the statement that is slow. */
    slow: undefined as string | undefined,
    now: 0,
    swept: [] as unknown[],
    proposed: [] as unknown[],
    tick: 1,
  };
  const query = async (text: string, values: unknown[] = []) => {
    if (world.isAway) throw new DatabaseUnavailableError();
    if (world.slow !== undefined && text.includes(world.slow)) throw new DatabaseBusyError('slow');
    if (text.includes('cnapi_sweep_late_tasks')) world.swept = values.slice(0, 2);
    if (!text.includes('cnapi_advance_ticks')) return { rows: [], rowCount: 0 };
    world.proposed = values;
    if (values[0] === world.tick) world.tick += Number(values[1]);
    return { rows: [{ tick: world.tick }], rowCount: 1 };
  };
  const sweeper = new Sweeper({
    database: { query } as unknown as Database,
    clock: { ...systemClock, now: () => world.now },
    log: silentLogger,
    sessionDispatch: { poll: async () => undefined, endClaimPeriod: () => [] },
    postDispatch: noPosts,
    config,
    onChanged: () => undefined,
  });
  const sweepAt = async (now: number) => {
    world.now = now;
    await sweeper.poll().catch(() => undefined);
    return world.swept;
  };
  return { sweepAt, world };
}

t.test('an instance that could not read for a while gives waiting tasks their full time again', async (t) => {
  const { sweepAt, world } = start();
  t.same(await sweepAt(0), [null, null], 'it has just started');
  t.same(await sweepAt(30_000), [120, null]);
  t.same(await sweepAt(60_000), [120, 60]);
  world.isAway = true;
  await sweepAt(65_000);
  world.isAway = false;
  t.same(await sweepAt(95_000), [null, null], 'the database has just come back');
  t.same(await sweepAt(125_000), [120, null]);
});

t.test('a slow statement of the poll stops neither the deadlines nor the search for overdue tasks', async (t) => {
  const { sweepAt, world } = start();
  world.slow = 'as busy';
  t.same(await sweepAt(0), [null, null]);
  for (const now of [30_000, 60_000]) await sweepAt(now);
  t.same([world.tick, world.swept], [61, [120, 60]]);
  world.slow = 'cnapi_advance_ticks';
  t.same(await sweepAt(70_000), [120, 60]);
  world.slow = undefined;
  await sweepAt(90_000);
  t.equal(world.tick, 91, 'the time of the slow statement counts');
});

t.test("the zone's time advances with the polls that the database answers", async (t) => {
  const { sweepAt, world } = start();
  for (const now of [0, 30_000, 60_000]) await sweepAt(now);
  t.equal(world.tick, 61);
  world.isAway = true;
  await sweepAt(70_000);
  world.isAway = false;
  for (const now of [80_000, 81_000]) await sweepAt(now);
  t.equal(world.tick, 62, 'not while the database was away');
});

const databases: [string, (t: Test) => Promise<Database>][] = [
  ['Postgres', async (t) => (await freshDatabase(t, { migrations })).database],
  ['PGlite', async (t) => freshPglite(t, { migrations })],
];

for (const [name, open] of databases) {
  t.test(`on ${name}`, async (t) => {
    const db = await open(t);
    const setClock = (step: string) =>
      db.query(
        `create or replace function cnapi_now() returns timestamptz language sql stable
           as $$ select clock_timestamp() + interval '${step}' $$`,
      );
    const ticksPass = async (by: number) => {
      const seen = await advanceTicks(db, { seen: null, by: 0 });
      t.equal(await advanceTicks(db, { seen, by }), seen + by);
    };

    t.test("only a proposal that names the counter's value advances it", async (t) => {
      const seen = await advanceTicks(db, { seen: null, by: 0 });
      t.equal(await advanceTicks(db, { seen: seen - 1, by: 5 }), seen);
      t.equal(await advanceTicks(db, { seen, by: 5 }), seen + 5);
      t.equal(await advanceTicks(db, { seen, by: 5 }), seen + 5, 'once');
    });

    for (const step of ['1 hour', '-1 hour']) {
      t.test(`a clock of the database set by ${step} neither ends tasks early nor keeps overdue ones`, async (t) => {
        const mine = await seat(db);
        const running = await create(db, mine.serverUuid, { timeoutMs: 60_000 });
        await claim(db, mine);
        await record(db, mine, running, { name: 'started' });
        const waiting = await create(db, mine.serverUuid);
        await setClock(step);
        t.same(await sweepTasks(db, sweepTimes), []);
        t.same(await takeOverdue(db, [mine], { overdueMs: 60_000, resendMs: 5_000 }), []);
        await ticksPass(31);
        t.same(await sweepTasks(db, sweepTimes), [waiting]);
        await ticksPass(90);
        matchLists(t, await takeOverdue(db, [mine], { overdueMs: 60_000, resendMs: 5_000 }), [{ id: running }]);
        await record(db, mine, running, { name: 'complete', resultJson: '{}' });
        await setClock('0 seconds');
      });
    }

    /** Posted tasks, as an instance of any version makes them, and one that waits behind them. */
    async function behindPosts(count: number): Promise<{ serverUuid: string; posted: string[]; waiting: string }> {
      const serverUuid = randomUUID();
      await db.query(
        `insert into cnapi_roster_authority (server_uuid, epoch, status, reason, since)
           values ($1::uuid, 1, 'running', 'legacy-heartbeat', cnapi_now())`,
        [serverUuid],
      );
      const posted: string[] = [];
      for (let n = 0; n < count; n += 1) posted.push(await create(db, serverUuid));
      await db.query(
        `update cnapi_tasks set state = 'claimed', attempt = 1, epoch = 1, journal_id = $2::uuid, posted_by = $2::uuid,
           claimed_at = cnapi_now() where id = any ($1::uuid[])`,
        [posted, randomUUID()],
      );
      return { serverUuid, posted, waiting: await create(db, serverUuid) };
    }

    t.test(
      'the time to start counts only while the server has room, and restarts when it has room again',
      async (t) => {
        const { posted, waiting } = await behindPosts(128);
        await ticksPass(600);
        t.same(await sweepTasks(db, sweepTimes), []);
        const mine: Seat = { serverUuid: (await row(db, waiting)).server_uuid, run: '', epoch: 1, journalId: '' };
        await record(db, mine, posted[0] ?? '', { name: 'complete', resultJson: '{}' });
        await ticksPass(30);
        t.same(await sweepTasks(db, sweepTimes), [], 'there was no room 30 ticks ago');
        await ticksPass(1);
        t.same(await sweepTasks(db, sweepTimes), [waiting], 'no agent took it although there is room');
      },
    );

    t.test('an instance that can post no more ends no task that another instance might take', async (t) => {
      const { waiting } = await behindPosts(0);
      await ticksPass(31);
      t.same(await sweepTasks(db, { ...sweepTimes, hasRoomForPosts: false }), []);
      await ticksPass(31);
      t.same(await sweepTasks(db, { ...sweepTimes, hasRoomForPosts: true }), [waiting]);
    });

    t.test('tasks that wait for a full server end when the server is gone', async (t) => {
      const { serverUuid, waiting } = await behindPosts(128);
      await db.query(`update cnapi_roster_authority set status = 'unknown' where server_uuid = $1::uuid`, [serverUuid]);
      await ticksPass(31);
      t.same(await sweepTasks(db, { ...sweepTimes, overdueMs: undefined }), [waiting]);
    });

    t.test("a server whose unfinished tasks fill its agent's journal is given no more, and is full", async (t) => {
      const mine = await seat(db);
      const large = await create(db, mine.serverUuid);
      matchLists(t, await claim(db, mine), [{ id: large }]);
      await record(db, mine, large, { name: 'accepted' });
      await db.query('update cnapi_tasks set params_bytes = $2::int where id = $1::uuid', [large, MAX_HELD_BYTES]);
      const waiting = await create(db, mine.serverUuid);
      const { claimed, saturated } = await claimTasks(db, mine.run, { sessions: [mine], resendMs });
      t.same([claimed, saturated], [[], [mine.serverUuid]]);
      await ticksPass(31);
      t.same(await sweepTasks(db, sweepTimes), [], 'it waits');
      await record(db, mine, large, { name: 'complete', resultJson: '{}' });
      matchLists(t, await claim(db, mine), [{ id: waiting }]);
    });

    t.test('the time to start begins anew when a server is noted as full', async (t) => {
      const mine = await seat(db);
      const waiting = await create(db, mine.serverUuid);
      await ticksPass(31);
      await recordFullServers(db, [mine.serverUuid]);
      t.same(await sweepTasks(db, sweepTimes), []);
      await ticksPass(30);
      t.same(await sweepTasks(db, sweepTimes), []);
      await ticksPass(1);
      t.same(await sweepTasks(db, sweepTimes), [waiting]);
    });

    t.test('an agent that takes none of its params is stuck, not full', async (t) => {
      const mine = await seat(db);
      const large = await create(db, mine.serverUuid, { params: { text: 'x'.repeat(5_000_000) } });
      const waiting = await create(db, mine.serverUuid);
      matchLists(t, await claim(db, mine), [{ id: large }]);
      await backdate(db, waiting, 31_000);
      t.same(await sweepTasks(db, sweepTimes), [], 'it has just been given it');
      await ticksPass(62);
      t.same(await sweepTasks(db, sweepTimes), [waiting]);
    });
  });
}
