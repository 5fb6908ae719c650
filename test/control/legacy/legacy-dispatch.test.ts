/** The driver of posts over a real database. The test answers in place of the agents. */
import pg from 'pg';
import t from 'tap';
import { POSTS_TOPIC } from '../../../lib/control/legacy/legacy-dispatch.ts';
import { taskEnds } from '../../../lib/control/tasks/store/task.ts';
import { DatabaseBusyError } from '../../../lib/platform/errors.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { create, migrations, row } from '../tasks/support/task-database.ts';
import { claimPostsOfAll, killRun, legacyServer, liveRun, postedBy } from './support/legacy-seats.ts';
import {
  CLAIMS_POSTS,
  Failing,
  FINDS_LOST_POSTS,
  instance,
  READS_DEAD_POSTERS,
  READS_WAITING,
  type World,
} from './support/posting-instance.ts';

t.test('posts', async (t) => {
  const { database, url } = await freshDatabase(t, { migrations });
  const world = (): World => ({ database, hub: new MemoryHub() });

  t.test('after a hint a task is claimed, posted once, recorded and forgotten', async (t) => {
    const one = await instance(t, world());
    const serverUuid = await legacyServer(database);
    const id = await create(database, serverUuid, { timeoutMs: 1_000, requestId: 'r', params: { a: 1 } });
    one.posts.hint(serverUuid);
    await until(() => one.agents.posted.length === 1, 'the post');
    t.same(one.agents.posted, [{ id, serverUuid, name: 'nop', params: { a: 1 }, requestId: 'r' }]);
    t.same(one.agents.timeouts, [61_000]);
    one.posts.poll();
    one.posts.hint(serverUuid);
    t.match(one.posts.stats(), { postsInFlight: 1, posted: 1 });
    one.agents.answer(id, { outcome: 'complete', result: { b: 2 } });
    await until(() => one.posts.stats().postsInFlight === 0, 'the end');
    t.match(await row(database, id), { outcome: 'complete', result: { b: 2 } });
    t.equal(one.agents.posted.length, 1);
  });

  t.test('without a hint the slow poll of any instance finds the task, and one instance posts it', async (t) => {
    const zone = world();
    const [one, two] = [await instance(t, zone), await instance(t, zone)];
    const made = await Promise.all(
      Array.from({ length: 10 }, async () => create(database, await legacyServer(database))),
    );
    one.posts.poll();
    two.posts.poll();
    await until(() => one.agents.posted.length + two.agents.posted.length >= 10, 'ten posts');
    one.posts.poll();
    two.posts.poll();
    const posted = [...one.agents.posted, ...two.agents.posted].map(({ id }) => id);
    t.same(posted.toSorted(), made.toSorted());
    for (const id of made) for (const { agents } of [one, two]) agents.answer(id);
    await until(() => one.posts.stats().postsInFlight + two.posts.stats().postsInFlight === 0, 'the ends');
  });

  t.test(
    'one slow poll is enough for more servers than one claim takes, and for those that wait for room',
    async (t) => {
      const one = await instance(t, world(), { room: { posts: 600, bytes: 1_000_000 } });
      const made: string[] = [];
      for (let n = 0; n < 700; n++) made.push(await create(database, await legacyServer(database)));
      one.posts.poll();
      await until(() => one.agents.posted.length === 600, 'as many posts as there is room for');
      for (const { id } of [...one.agents.posted]) one.agents.answer(id);
      await until(() => one.agents.posted.length === 700, 'the others');
      for (const id of made) one.agents.answer(id);
      await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
      t.same(one.agents.posted.map(({ id }) => id).toSorted(), made.toSorted());
    },
  );

  t.test('an instance without room for most of its servers offers each of them once for each slow poll', async (t) => {
    const one = await instance(t, world(), { room: { posts: 1, bytes: 1_000 } });
    const offered: unknown[] = [];
    one.bus.subscribe(POSTS_TOPIC, ({ server_uuid: serverUuid }) => offered.push(serverUuid));
    for (let n = 0; n < 6; n++) await create(database, await legacyServer(database));
    one.posts.poll();
    for (let n = 0; n < 6; n++) {
      await until(() => one.agents.posted.length > n, 'the next post');
      if (n === 0) await until(() => offered.length === 5, 'the others to be offered');
      one.agents.answer(one.agents.posted[n]?.id ?? '');
    }
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
    t.same([offered.length, new Set(offered).size], [5, 5]);
  });

  t.test('an instance that leaves or is full offers new tasks to the others', async (t) => {
    const zone = world();
    const one = await instance(t, zone, { room: { posts: 1, bytes: 1_000 } });
    const first = await create(database, await legacyServer(database));
    one.posts.poll();
    await until(() => one.agents.posted.length === 1, 'the first');
    const two = await instance(t, zone);
    const full = await legacyServer(database);
    const second = await create(database, full);
    one.posts.hint(full);
    await until(() => two.agents.posted.length === 1, 'the second post, at the other instance');
    one.agents.answer(first);
    await until(() => one.posts.stats().postsInFlight === 0, 'the end of the first');
    one.posts.stopClaiming();
    const left = await legacyServer(database);
    const third = await create(database, left);
    one.posts.hint(left);
    await until(() => two.agents.posted.length === 2, 'the third post, at the other instance');
    t.same(
      two.agents.posted.map(({ id }) => id),
      [second, third],
    );
    for (const id of [second, third]) two.agents.answer(id);
    await until(() => two.posts.stats().postsInFlight === 0, 'the ends');
  });

  t.test('a full server is given more as soon as some of its tasks have ended', async (t) => {
    const one = await instance(t, world());
    const serverUuid = await legacyServer(database);
    const made: string[] = [];
    for (let n = 0; n < 130; n++) made.push(await create(database, serverUuid));
    one.posts.hint(serverUuid);
    await until(() => one.agents.posted.length === 128, 'as many posts as one server may have');
    one.agents.answer(made[5] ?? '');
    await until(() => one.agents.posted.length === 129, 'one more post');
    for (const id of made) one.agents.answer(id);
    await until(() => one.agents.posted.length === 130, 'the last post');
    one.agents.answer(made[129] ?? '');
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
  });

  t.test('after a lost answer to a claim the slow poll posts the task, once', async (t) => {
    const one = await instance(t, world());
    const serverUuid = await legacyServer(database);
    const id = await create(database, serverUuid);
    await claimPostsOfAll(database, one.run);
    one.posts.poll();
    await until(() => one.agents.posted.length === 1, 'the post');
    one.posts.poll();
    one.agents.answer(id);
    await until(() => one.posts.stats().postsInFlight === 0, 'the end');
    t.equal(one.agents.posted.length, 1);
    t.match(await row(database, id), { outcome: 'complete', attempt: 1 });
  });

  t.test('tasks claimed by lost answers are posted only as far as there is room', async (t) => {
    const one = await instance(t, world(), { room: { posts: 2, bytes: 1_000 } });
    const made: string[] = [];
    for (let n = 0; n < 5; n++) made.push(await create(database, await legacyServer(database)));
    await claimPostsOfAll(database, one.run);
    for (let done = 0; done < made.length; ) {
      one.posts.poll();
      await until(() => one.agents.posted.length > done, 'a post');
      const { postsInFlight } = one.posts.stats();
      t.ok(postsInFlight <= 2, `${postsInFlight} at once`);
      for (const { id } of one.agents.posted.slice(done)) one.agents.answer(id);
      done = one.agents.posted.length;
      await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
    }
    t.same(one.agents.posted.map(({ id }) => id).toSorted(), made.toSorted());
  });

  t.test('a server whose claim is slow or locked delays no other server', async (t) => {
    const failing = new Failing(database, CLAIMS_POSTS);
    const one = await instance(t, { ...world(), database: failing });
    const servers = await Promise.all(Array.from({ length: 7 }, () => legacyServer(database)));
    const made = await Promise.all(servers.map((serverUuid) => create(database, serverUuid)));
    const inUse = servers[3] ?? '';
    failing.failure = (claimed) => (claimed.includes(inUse) ? new DatabaseBusyError('locked') : undefined);
    for (const serverUuid of servers) one.posts.hint(serverUuid);
    await until(() => one.agents.posted.length === 6, 'the posts to the others');
    const late = await create(database, await legacyServer(database));
    one.posts.hint((await row(database, late)).server_uuid);
    await until(() => one.agents.posted.length === 7, 'a later post');
    failing.failure = () => undefined;
    await until(() => one.agents.posted.length === 8, 'the locked task to be posted without a slow poll');
    for (const id of [...made, late]) one.agents.answer(id);
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
  });

  t.test('a server whose claims fail while the database is busy is reported as without an answer', async (t) => {
    const failing = new Failing(database, CLAIMS_POSTS);
    const one = await instance(t, { ...world(), database: failing });
    const serverUuid = await legacyServer(database);
    const id = await create(database, serverUuid);
    failing.failure = () => new DatabaseBusyError('slow');
    one.posts.hint(serverUuid);
    t.same(one.posts.endClaimPeriod(), [], 'not before a whole period');
    t.same(one.posts.endClaimPeriod(), [serverUuid]);
    failing.failure = () => undefined;
    await until(() => one.agents.posted.length === 1, 'the post');
    t.same(one.posts.endClaimPeriod(), []);
    one.agents.answer(id);
    await until(() => one.posts.stats().postsInFlight === 0, 'the end');
  });

  t.test('a blocked slow poll delays no hint', async (t) => {
    const failing = new Failing(database, READS_DEAD_POSTERS);
    const one = await instance(t, { ...world(), database: failing });
    failing.failure = () => new DatabaseBusyError('slow');
    one.posts.poll();
    await until(() => failing.failed >= 2, 'the poll to fail twice');
    const serverUuid = await legacyServer(database);
    const id = await create(database, serverUuid);
    one.posts.hint(serverUuid);
    await until(() => one.agents.posted.length === 1, 'the post');
    one.agents.answer(id);
    const unhinted = await create(database, await legacyServer(database));
    failing.failure = () => undefined;
    await until(() => one.agents.posted.length === 2, 'the poll to continue');
    one.agents.answer(unhinted);
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
  });

  t.test('a slow poll of which one statement fails does its other work', async (t) => {
    for (const text of [FINDS_LOST_POSTS, READS_DEAD_POSTERS, READS_WAITING]) {
      const failing = new Failing(database, text);
      const one = await instance(t, { ...world(), database: failing });
      failing.failure = () => new DatabaseBusyError('slow');
      const id = await create(database, await legacyServer(database));
      if (text === READS_WAITING) one.posts.hint((await row(database, id)).server_uuid);
      one.posts.poll();
      await until(() => one.agents.posted.length === 1, `the post although ${text} fails`);
      one.records = false;
      one.agents.answer(id);
      await until(() => one.told >= 1, 'the end to be reported');
      one.records = true;
      one.posts.poll();
      await until(() => one.posts.stats().postsInFlight === 0, 'it to be recorded');
      const gone = await liveRun(database);
      const left = await create(database, await legacyServer(database));
      await claimPostsOfAll(database, gone);
      await killRun(database, gone);
      one.posts.poll();
      if (text !== READS_DEAD_POSTERS) await until(() => one.ended.includes(left), 'the post of the dead run to end');
      t.ok(failing.failed > 0);
      failing.failure = () => undefined;
      await until(() => one.ended.includes(left), 'the failed work to be done later');
      // Its slow poll is repeated, and would take the next task.
      await one.posts.stop();
    }
  });

  t.test('a server with a locked row is claimed for when there is room again, and offered until then', async (t) => {
    const zone = world();
    const one = await instance(t, zone, { room: { posts: 1, bytes: 1_000 } });
    const offered = new Set<unknown>();
    one.bus.subscribe(POSTS_TOPIC, ({ server_uuid: serverUuid }) => offered.add(serverUuid));
    const [free, inUse] = [await legacyServer(database), await legacyServer(database)];
    const first = await create(database, free);
    const second = await create(database, inUse);
    const holder = new pg.Client({ connectionString: url });
    await holder.connect();
    t.teardown(() => holder.end());
    await holder.query('begin');
    await holder.query('select 1 from cnapi_roster_authority where server_uuid = $1::uuid for update', [inUse]);
    one.posts.hint(inUse);
    one.posts.hint(free);
    await until(() => one.agents.posted.length === 1, 'the first');
    await until(() => offered.has(inUse), 'the other one to be offered');
    await holder.query('commit');
    one.agents.answer(first);
    await until(() => one.agents.posted.length === 2, 'the second, without a slow poll');
    t.equal(one.agents.posted[1]?.id, second);
    one.agents.answer(second);
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
  });

  t.test('an unrecorded end is reported again by the slow poll', async (t) => {
    const one = await instance(t, world());
    const id = await create(database, await legacyServer(database));
    one.posts.poll();
    await until(() => one.agents.posted.length === 1, 'the post');
    one.records = false;
    one.agents.answer(id);
    await until(() => one.told >= 1, 'the end to be reported');
    one.records = true;
    one.posts.poll();
    await until(() => one.posts.stats().postsInFlight === 0, 'it to be recorded');
    t.match(await row(database, id), { outcome: 'complete' });
  });

  t.test('a run declared dead that continues moves its posts; another instance ends those of a dead one', async (t) => {
    const zone = world();
    const one = await instance(t, zone);
    // It has no room, so it claims nothing.
    const two = await instance(t, zone, { room: { posts: 0, bytes: 0 } });
    const id = await create(database, await legacyServer(database));
    one.posts.poll();
    await until(() => one.agents.posted.length === 1, 'the post');
    const stopped = await liveRun(database);
    const last = await create(database, await legacyServer(database));
    await claimPostsOfAll(database, stopped);
    await killRun(database, stopped);
    // Only the database's clock says that it died long ago, and that clock may just have been set.
    await killRun(database, one.run, 3_600_000);
    two.posts.poll();
    await until(() => two.ended.includes(last), 'the posts of a stopped run to be ended at once');
    t.match(await row(database, id), { state: 'claimed' });
    const next = await liveRun(database);
    one.run = next;
    await create(database, await legacyServer(database));
    one.posts.poll();
    // Tasks that a poll claims come last in it.
    await until(() => one.agents.posted.length === 2, 'the poll to finish');
    await until(async () => (await postedBy(database, id)) === next, 'the first to be moved');
    await killRun(database, next);
    two.posts.poll();
    await until(() => two.ended.includes(id), 'the other instance to end it');
    t.match(await row(database, id), { error: taskEnds.senderLost });
    t.equal(two.posts.stats().postsLost, 3);
    one.run = await liveRun(database);
    one.posts.poll();
    await until(() => one.posts.stats().postsInFlight === 0, 'the first to release it');
  });

  t.test('a post with a locked row is moved to the new run a moment later, the others at once', async (t) => {
    const one = await instance(t, world());
    const ids = [
      await create(database, await legacyServer(database)),
      await create(database, await legacyServer(database)),
    ];
    one.posts.poll();
    await until(() => one.agents.posted.length === 2, 'the posts');
    await killRun(database, one.run, 60_000);
    one.run = await liveRun(database);
    await database.transaction(async (holder) => {
      await holder.query('select 1 from cnapi_tasks where id = $1::uuid for update', [ids[0]]);
      one.posts.poll();
      await until(async () => (await postedBy(database, ids[1] ?? '')) === one.run, 'the other one to be moved');
    });
    await until(async () => (await postedBy(database, ids[0] ?? '')) === one.run, 'the first one to be moved too');
    for (const id of ids) one.agents.answer(id);
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
    for (const id of ids) t.match(await row(database, id), { outcome: 'complete' });
  });

  t.test('a stop ends posted tasks as unknown at once', async (t) => {
    const one = await instance(t, world());
    const id = await create(database, await legacyServer(database));
    one.posts.poll();
    await until(() => one.agents.posted.length === 1, 'the post');
    await one.posts.stop();
    await until(() => one.posts.stats().postsInFlight === 0, 'the end');
    t.match(await row(database, id), { error: taskEnds.senderLost });
  });
});
