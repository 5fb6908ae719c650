import t from 'tap';
import { taskEnds } from '../../../lib/control/tasks/store/task.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { create, migrations, row } from '../tasks/support/task-database.ts';
import { legacyServer, liveRun } from './support/legacy-seats.ts';
import { Failing, instance, READS_POSTS, type World } from './support/posting-instance.ts';

t.test('claimed tasks', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const world = (): World => ({ database, hub: new MemoryHub() });

  t.test('a task that is claimed and cannot be read yet takes up room', async (t) => {
    const failing = new Failing(database, READS_POSTS);
    const one = await instance(t, { ...world(), database: failing }, { room: { posts: 2, bytes: 1_000 } });
    const servers = await Promise.all(Array.from({ length: 5 }, () => legacyServer(database)));
    for (const serverUuid of servers) await create(database, serverUuid);
    failing.failure = () => new DatabaseUnavailableError(new Error('gone'));
    for (const serverUuid of servers) one.posts.hint(serverUuid);
    await until(() => failing.failed >= 4, 'some tries');
    const { rows } = await database.query<{ claimed: number }>(
      'select count(*)::int as claimed from cnapi_tasks where posted_by = $1::uuid',
      [one.run],
    );
    t.ok((rows[0]?.claimed ?? 9) <= 2, 'no more is claimed than there is room for');
    failing.failure = () => undefined;
    for (let n = 0; n < 5; n++) {
      await until(() => one.agents.posted.length > n, 'the next post');
      one.agents.answer(one.agents.posted[n]?.id ?? '');
    }
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
  });

  t.test('one unreadable task does not keep others from being posted', async (t) => {
    const failing = new Failing(database, READS_POSTS);
    const one = await instance(t, { ...world(), database: failing });
    const made: string[] = [];
    for (let n = 0; n < 7; n++) made.push(await create(database, await legacyServer(database)));
    const unreadable = made[3] ?? '';
    failing.failure = (ids) => (ids.includes(unreadable) ? new Error('missing chunk of a toast value') : undefined);
    one.posts.poll();
    await until(() => one.agents.posted.length === 6, 'the others');
    failing.failure = () => undefined;
    one.posts.poll();
    await until(() => one.agents.posted.length === 7, 'the slow poll to find it');
    for (const id of made) one.agents.answer(id);
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
  });

  t.test('a task that never passes the network ends without being posted, and its room is free again', async (t) => {
    const failing = new Failing(database, READS_POSTS);
    const one = await instance(t, { ...world(), database: failing }, { room: { posts: 1, bytes: 1_000 } });
    const large = await create(database, await legacyServer(database));
    failing.failure = (ids) => (ids.includes(large) ? new DatabaseBusyError('unanswered') : undefined);
    one.posts.poll();
    await until(() => failing.failed > 0, 'the first try');
    const small = await create(database, await legacyServer(database));
    one.posts.hint((await row(database, small)).server_uuid);
    await until(() => one.agents.posted.length === 1, 'the post of the other task');
    t.equal(one.agents.posted[0]?.id, small);
    t.match(await row(database, large), { outcome: 'failure', error: taskEnds.notRead });
    t.equal(failing.failed, 5);
    one.agents.answer(small);
    await until(() => one.posts.stats().postsInFlight === 0, 'the end');
  });

  t.test('a task is posted once, even if the read of a later run fails after its own', async (t) => {
    const failing = new Failing(database, READS_POSTS);
    const one = await instance(t, { ...world(), database: failing });
    const away = new DatabaseUnavailableError(new Error('gone'));
    const [first, second] = [
      await create(database, await legacyServer(database)),
      await create(database, await legacyServer(database)),
    ];
    failing.failure = () => away;
    for (const id of [first, second]) {
      one.run = await liveRun(database);
      one.posts.hint((await row(database, id)).server_uuid);
      await until(async () => (await row(database, id)).state === 'claimed', 'the claim');
    }
    failing.failure = (ids) => {
      if (!ids.includes(second)) return undefined;
      failing.failure = () => undefined;
      return away;
    };
    await until(() => one.agents.posted.some(({ id }) => id === second), 'the post of the second');
    t.same(
      one.agents.posted.map(({ id }) => id),
      [first, second],
    );
    for (const id of [first, second]) one.agents.answer(id);
    await until(() => one.posts.stats().postsInFlight === 0, 'the ends');
  });
});
