/**
 * Who posts what to legacy agents, and how posts end: the statements, one after another and in
 * forced pairs (law 5).
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  type ClaimedPosts,
  claimPosts,
  endPosts,
  findLostPosts,
  type MovedPosts,
  movePosts,
  type PostOrder,
  readDeadPostingRuns,
} from '../../../lib/control/legacy/post-store.ts';
import { sweepTasks } from '../../../lib/control/tasks/deadlines/deadline-store.ts';
import { claimTasks, readInheritedTasks } from '../../../lib/control/tasks/dispatch/claim-store.ts';
import { taskEnds } from '../../../lib/control/tasks/store/task.ts';
import { MAX_UNACCEPTED_BYTES } from '../../../lib/control/tasks/store/task-limits.ts';
import { type CancelledTask, cancelTask } from '../../../lib/control/tasks/store/task-store.ts';
import { setRunningByHeartbeats } from '../../support/fake-legacy-agent.ts';
import { type Leg, runBehindLock } from '../../support/lock-waits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase } from '../../support/postgres.ts';
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
  type Seat,
  seat,
  setUnknown,
} from '../tasks/support/task-database.ts';
import { claimPostsFor, killRun, legacyServer, liveRun, postedBy } from './support/legacy-seats.ts';

const ids = (orders: readonly { id: string }[]) => orders.map((order) => order.id);

t.test('statements about posts', async (t) => {
  const { url, open } = await freshDatabase(t, { migrations });
  const db = open({ maxConnections: 10 });
  const run = await liveRun(db);

  async function queued(fields = {}) {
    const serverUuid = await legacyServer(db);
    return { serverUuid, id: await create(db, serverUuid, fields) };
  }
  async function posted(by = run, fields = {}) {
    const made = await queued(fields);
    await claimPostsFor(db, by, { servers: [made.serverUuid] });
    return made;
  }

  t.test('a claim numbers the attempt and names the run, and its order says what to post', async (t) => {
    const { serverUuid, id } = await queued({ params: { a: 1 }, timeoutMs: 7, requestId: 'r' });
    matchLists(t, await claimPostsFor(db, run, { servers: [serverUuid] }), [
      {
        id,
        server_uuid: serverUuid,
        attempt: 1,
        name: 'nop',
        params: { a: 1 },
        params_bytes: 7,
        timeout_ms: 7,
        req_id: 'r',
      },
    ]);
    t.match(await row(db, id), { state: 'claimed', attempt: 1 });
    t.equal(await postedBy(db, id), run);
    t.same(await claimPostsFor(db, run, { servers: [serverUuid] }), []);
  });

  t.test('a claim needs a running server with a legacy agent, and a live run', async (t) => {
    const linked = await seat(db);
    await create(db, linked.serverUuid);
    const gone = await queued();
    await setUnknown(db, gone.serverUuid);
    const here = await queued();
    const servers = [linked.serverUuid, gone.serverUuid, here.serverUuid];
    const dead = await liveRun(db);
    await killRun(db, dead);
    t.same(await claimPostsFor(db, dead, { servers }), []);
    t.same(await claimPostsFor(db, randomUUID(), { servers }), []);
    t.same(ids(await claimPostsFor(db, run, { servers })), [here.id]);
    t.same(
      await claim(db, { ...linked, serverUuid: here.serverUuid }),
      [],
      'no session is given tasks of a legacy agent',
    );
  });

  t.test('a server has a bounded number of posts and bytes at once, over all instances', async (t) => {
    const serverUuid = await legacyServer(db);
    const made: string[] = [];
    for (let n = 0; n < 5; n++) made.push(await create(db, serverUuid, { params: { n } }));
    const other = await liveRun(db);
    const room = { posts: 100, bytes: 1_000 };
    const bounds = { servers: [serverUuid], room, ofServer: { posts: 3, bytes: 1_000 } };
    const first = await claimPosts(db, run, { ...bounds, room: { posts: 2, bytes: 1_000 } });
    t.same([ids(first.given), first.full], [made.slice(0, 2), [serverUuid]]);
    const second = await claimPosts(db, other, bounds);
    t.same([ids(second.given), second.full], [[made[2]], [serverUuid]]);
    t.same(await claimPostsFor(db, run, bounds), []);
    await record(db, { serverUuid } as Seat, made[0] ?? '', complete());
    const small = await claimPosts(db, run, { ...bounds, ofServer: { posts: 9, bytes: 15 } });
    t.same([ids(small.given), small.full], [[made[3]], [serverUuid]], 'one task over the bytes, and no more');
    t.same(ids(await claimPostsFor(db, run, { ...bounds, ofServer: { posts: 9, bytes: 1_000 } })), [made[4]]);
  });

  t.test('the server that waits longest is served first, and a full one takes no place', async (t) => {
    const [low = '', high = ''] = [await legacyServer(db), await legacyServer(db)].sort();
    const tasks: string[] = [];
    for (const serverUuid of [high, high, low]) tasks.push(await create(db, serverUuid));
    const claimed = async () => {
      const options = { servers: [low, high], room: { posts: 1, bytes: 1_000 }, ofServer: { posts: 9, bytes: 1 } };
      const { given, full, again } = await claimPosts(db, run, options);
      return { given: ids(given), full, again };
    };
    t.same(await claimed(), { given: [tasks[0]], full: [high], again: [low] });
    t.same(await claimed(), { given: [tasks[2]], full: [high], again: [] });
  });

  t.test('the bytes of one claim are bounded over its servers', async (t) => {
    const one = await queued({ params: { text: 'x'.repeat(600) } });
    const two = await queued({ params: { text: 'x'.repeat(600) } });
    const options = { servers: [one.serverUuid, two.serverUuid], room: { posts: 9, bytes: 500 } };
    t.equal((await claimPostsFor(db, run, options)).length, 1);
    t.equal((await claimPostsFor(db, run, options)).length, 1);
  });

  t.test('posts to a legacy agent that was replaced take no room of the session of the new agent', async (t) => {
    const room = { posts: 100, bytes: 10 * MAX_UNACCEPTED_BYTES };
    const serverUuid = await legacyServer(db);
    for (let n = 0; n < 2; n++) {
      await create(db, serverUuid, { params: { text: 'x'.repeat(MAX_UNACCEPTED_BYTES) } });
      t.equal((await claimPosts(db, run, { servers: [serverUuid], room })).given.length, 1);
    }
    const mine = await accept(db, { serverUuid, run, epoch: 1, journalId: randomUUID() });
    const first = await create(db, serverUuid, { params: { text: 'x'.repeat(MAX_UNACCEPTED_BYTES) } });
    const second = await create(db, serverUuid);
    const claimed = async () => {
      const { claimed, saturated } = await claimTasks(db, mine.run, { sessions: [mine], resendMs: 5_000 });
      return [ids(claimed), saturated];
    };
    t.same(await claimed(), [[first], [serverUuid]]);
    await record(db, mine, first, { name: 'accepted' });
    t.same(await claimed(), [[second], []]);
  });

  t.test('a claim whose answer was lost is found again, and posts that are held are not', async (t) => {
    const mine = await liveRun(db);
    const held = await posted(mine);
    const lost = await posted(mine);
    await posted();
    const known = [held.id];
    matchLists(t, await findLostPosts(db, mine, { known, limit: 9 }), [{ id: lost.id, attempt: 1, params_bytes: 2 }]);
    await record(db, { serverUuid: lost.serverUuid } as Seat, lost.id, complete());
    t.same(await findLostPosts(db, mine, { known, limit: 9 }), []);
  });

  t.test('dead runs with posts are listed whatever the clock says of their end', async (t) => {
    const [stopped, lapsed, forgotten] = [await liveRun(db), await liveRun(db), await liveRun(db)];
    for (const one of [stopped, lapsed, forgotten]) await posted(one);
    await posted();
    await killRun(db, stopped);
    await killRun(db, lapsed, 3_600_000);
    await killRun(db, await liveRun(db));
    await db.query('delete from cnapi_instances where run = $1::uuid', [forgotten]);
    const dead = await readDeadPostingRuns(db);
    t.same(
      new Map(dead.map(({ run, mayResumeUnderNewRun }) => [run, mayResumeUnderNewRun])),
      new Map([
        [stopped, false],
        [lapsed, true],
        [forgotten, false],
      ]),
    );
    await endPosts(db, [stopped, lapsed, forgotten]);
    t.same(await readDeadPostingRuns(db), []);
  });

  t.test('posts of a dead run end as unknown even if idempotent, because two attempts might run at once', async (t) => {
    const dead = await liveRun(db);
    const [one, two, three] = [await posted(dead), await posted(dead, { idempotent: true }), await posted()];
    await killRun(db, dead);
    t.equal((await endPosts(db, [dead], 1)).length, 1, 'a bounded number at once');
    t.equal((await endPosts(db, [dead])).length, 1);
    t.same(await endPosts(db, [dead]), []);
    t.match(await row(db, one.id), { attempt: 1, outcome: 'failure', error: taskEnds.senderLost });
    t.match(await row(db, two.id), { attempt: 1, outcome: 'failure', error: taskEnds.senderLost });
    t.match(await row(db, three.id), { state: 'claimed' });
    t.same(
      await record(db, { serverUuid: one.serverUuid } as Seat, one.id, complete()),
      [],
      'a late answer changes nothing',
    );
  });

  t.test('a run that continues under a new id takes its posts along', async (t) => {
    const [from, to] = [await liveRun(db), await liveRun(db)];
    const [one, two] = [await posted(from), await posted(from)];
    const others = await posted();
    await killRun(db, from, 1_000);
    await record(db, { serverUuid: two.serverUuid } as Seat, two.id, complete());
    const all = [one.id, two.id, others.id];
    const answer = { moved: new Set([one.id]), locked: new Set() };
    t.same(await movePosts(db, { from, to }, all), answer);
    t.same(await movePosts(db, { from, to }, all), answer, 'a repetition is harmless');
    t.same(await endPosts(db, [from]), []);
  });

  t.test('a cancel ends a queued task and cannot stop a posted one', async (t) => {
    const { serverUuid, id } = await queued();
    t.match(await cancelTask(db, id), { isEnded: true });
    t.match(await row(db, id), { state: 'ended', error: taskEnds.cancelled });
    t.same(await claimPostsFor(db, run, { servers: [serverUuid] }), []);
    const taken = await posted();
    t.equal(await cancelTask(db, taken.id), undefined);
    t.match(await row(db, taken.id), { state: 'claimed', cancel_requested_at: null });
  });

  t.test(
    'after a change to a linked agent, posts stay with their run and queued tasks go to the session',
    async (t) => {
      const { serverUuid, id } = await posted();
      const next = await create(db, serverUuid);
      const mine = await accept(db, { serverUuid, run, epoch: 1, journalId: randomUUID() });
      t.same(await readInheritedTasks(db, [mine], 100), []);
      matchLists(t, await claim(db, mine), [{ what: 'send', id: next }]);
      t.same(await claimPostsFor(db, run, { servers: [serverUuid] }), []);
      matchLists(t, await record(db, mine, id, complete()), [{ id, ended: true }]);
    },
  );

  t.test('any instance ends a posted task past its timeout if the server is unknown', async (t) => {
    const { serverUuid, id } = await posted(run, { timeoutMs: 1_000 });
    await backdate(db, id, 60_000);
    await setUnknown(db, serverUuid);
    t.same(await sweepTasks(db, { startByMs: 30_000, overdueMs }), []);
    await backdate(db, id, 2_000);
    t.same(await sweepTasks(db, { startByMs: 30_000, overdueMs }), [id]);
    t.match(await row(db, id), { error: taskEnds.timedOut });
  });

  t.test('concurrent statements about posts in both orders', async (t) => {
    const leg = <Result>(name: string, work: () => Promise<Result>): Leg<Result> => ({ name, run: work });
    const posting = (serverUuid: string, by = run) =>
      leg<PostOrder[]>('claim posts', () => claimPostsFor(db, by, { servers: [serverUuid] }));
    const accepting = ({ serverUuid }: { serverUuid: string }) =>
      leg<Seat>('accept', () => accept(db, { serverUuid, run, epoch: 1, journalId: randomUUID() }));
    const lockServer = (serverUuid: string) =>
      `select 1 from cnapi_roster_authority where server_uuid = '${serverUuid}' for update`;
    const claimSql = (serverUuid: string, by = run) =>
      `select * from cnapi_claim_for_posts('${by}', '{${serverUuid}}', 100, 1000000, 100, 1000000)`;

    t.test('of two instances that claim one task, one posts it', async (t) => {
      const { serverUuid, id } = await queued();
      const other = await liveRun(db);
      const [skipped] = await runBehindLock<[ClaimedPosts]>(url, lockServer(serverUuid), [
        leg('claim posts', () => claimPosts(db, run, { servers: [serverUuid], room: { posts: 9, bytes: 1_000 } })),
      ]);
      matchLists(t, skipped, { given: [], again: [serverUuid] }, 'a locked row is skipped and has to be claimed again');
      t.same(ids(await claimPostsFor(db, run, { servers: [serverUuid] })), [id]);
      const two = await queued();
      t.same(await runBehindLock<[PostOrder[]]>(url, claimSql(two.serverUuid, other), [posting(two.serverUuid)]), [[]]);
      t.equal(await postedBy(db, two.id), other);
    });

    t.test('of two instances that claim, both respect the limit of the server', async (t) => {
      const { serverUuid } = await queued();
      await create(db, serverUuid);
      await create(db, serverUuid);
      const bounded = (by: string) =>
        leg('claim posts', () =>
          claimPostsFor(db, by, { servers: [serverUuid], ofServer: { posts: 2, bytes: 1_000 } }),
        );
      const other = await liveRun(db);
      const both = await Promise.all([bounded(run).run(), bounded(other).run()]);
      t.equal(both.flat().length, 2);
    });

    t.test('accept then claim of posts: the session is given the task', async (t) => {
      const { serverUuid, id } = await queued();
      const [mine] = await runBehindLock<[Seat, PostOrder[]]>(url, lockServer(serverUuid), [
        accepting({ serverUuid }),
        posting(serverUuid),
      ]);
      t.same(await claimPostsFor(db, run, { servers: [serverUuid] }), []);
      matchLists(t, await claim(db, mine), [{ what: 'send', id, attempt: 1 }]);
      t.equal(await postedBy(db, id), null);
    });

    t.test('claim of posts then accept: the session is given nothing', async (t) => {
      const { serverUuid, id } = await queued();
      const [mine] = await runBehindLock<[Seat]>(url, claimSql(serverUuid), [accepting({ serverUuid })]);
      t.equal(await postedBy(db, id), run);
      t.same(await claim(db, mine), []);
      t.same(await readInheritedTasks(db, [mine], 9), []);
    });

    t.test('a session claims while the server falls back to a legacy agent, in both orders', async (t) => {
      const mine = await seat(db);
      const id = await create(db, mine.serverUuid);
      const falling = leg('heartbeat', () => setRunningByHeartbeats(db, mine.serverUuid));
      const claiming = leg('claim', () => claim(db, mine));
      const [, orders] = await runBehindLock<[unknown, { id: string }[]]>(url, lockServer(mine.serverUuid), [
        falling,
        claiming,
      ]);
      t.same(orders, []);
      t.same(ids(await claimPostsFor(db, run, { servers: [mine.serverUuid] })), [id]);
      const two = await seat(db);
      const next = await create(db, two.serverUuid);
      const linkSql = `select * from cnapi_claim_for_sessions('${two.run}', '{${two.serverUuid}}', '{1}', '{${two.journalId}}', 5000,
        100, 100, 1000000, 10000000, 100, 1000000, 100)`;
      const back = leg('heartbeat', () => setRunningByHeartbeats(db, two.serverUuid));
      const [, late] = await runBehindLock<[unknown, PostOrder[]]>(url, linkSql, [back, posting(two.serverUuid)]);
      t.same(late, []);
      t.match(await row(db, next), { state: 'claimed' });
      t.equal(await postedBy(db, next), null);
    });

    t.test('session loss then claim of posts: nothing is posted to a server that is unknown', async (t) => {
      const { serverUuid } = await queued();
      const changing = leg('status change', () => setUnknown(db, serverUuid));
      const [, orders] = await runBehindLock<[unknown, PostOrder[]]>(url, lockServer(serverUuid), [
        changing,
        posting(serverUuid),
      ]);
      t.same(orders, []);
    });

    t.test('cancel and claim of posts: the task ends without a post, or is posted and continues', async (t) => {
      const one = await queued();
      const cancelSql = `update cnapi_tasks set state = 'ended', outcome = 'failure' where id = '${one.id}'`;
      t.same(await runBehindLock<[PostOrder[]]>(url, cancelSql, [posting(one.serverUuid)]), [[]]);
      const two = await queued();
      const cancelling = leg('cancel', () => cancelTask(db, two.id));
      t.same(await runBehindLock<[CancelledTask | undefined]>(url, claimSql(two.serverUuid), [cancelling]), [
        undefined,
      ]);
      t.match(await row(db, two.id), { state: 'claimed', cancel_requested_at: null });
    });

    t.test("of ending a dead run's posts and moving them to its new run, only one applies", async (t) => {
      const [from, to] = [await liveRun(db), await liveRun(db)];
      const one = await posted(from);
      await killRun(db, from, 60_000);
      const moving = (id: string) => leg('move', () => movePosts(db, { from, to }, [id]));
      const endSql = `update cnapi_tasks set state = 'ended', outcome = 'failure' where id = '${one.id}'`;
      const inUse = { moved: new Set<string>(), locked: new Set([one.id]) };
      t.same(await runBehindLock<[MovedPosts]>(url, endSql, [moving(one.id)]), [inUse], 'it does not wait for the row');
      t.same(
        await movePosts(db, { from, to }, [one.id]),
        { moved: new Set(), locked: new Set() },
        'the post has ended',
      );
      t.match(await row(db, one.id), { state: 'ended' });
      const two = await liveRun(db).then((alive) => posted(alive));
      const moveSql = `update cnapi_tasks set posted_by = '${run}' where id = '${two.id}'`;
      const dead = (await postedBy(db, two.id)) ?? '';
      await killRun(db, dead, 60_000);
      const ending = leg('end', () => endPosts(db, [dead]));
      t.same(await runBehindLock<[string[]]>(url, moveSql, [ending]), [[]]);
      t.same(await ending.run(), []);
      t.match(await row(db, two.id), { state: 'claimed' });
    });

    t.test('of the answer and the end for lack of a sender, the first stands', async (t) => {
      const dead = await liveRun(db);
      const { serverUuid, id } = await posted(dead);
      await killRun(db, dead);
      const ending = leg<string[]>('end', () => endPosts(db, [dead]));
      const answer = `select * from cnapi_record_task_reports('{${id}}', '{${serverUuid}}', '{1}', '{complete}', '{then}', '{null}',
        '{null}', '{null}', '{null}', '{0}', 1000, 1000, null)`;
      t.same(await runBehindLock<[string[]]>(url, answer, [ending]), [[]]);
      t.match(await row(db, id), { outcome: 'complete' });
      t.same(await ending.run(), []);
    });
  });
});
