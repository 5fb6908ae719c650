import t from 'tap';
import { readWaitingServers } from '../../../lib/control/legacy/post-store.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { create, migrations, seat, setUnknown } from '../tasks/support/task-database.ts';
import { claimPostsFor, legacyServer, liveRun } from './support/legacy-seats.ts';

t.test('the servers that wait are those with legacy agents, the longest first and full ones last', async (t) => {
  const { database: db } = await freshDatabase(t, { migrations });
  const run = await liveRun(db);
  const queued = async () => {
    const serverUuid = await legacyServer(db);
    await create(db, serverUuid);
    return serverUuid;
  };
  const linked = await seat(db);
  await create(db, linked.serverUuid);
  const gone = await queued();
  await setUnknown(db, gone);
  const busy = await queued();
  await claimPostsFor(db, run, { servers: [busy] });
  await create(db, busy);
  const idle = await legacyServer(db);
  const [first, second] = [await queued(), await queued()];
  await create(db, first);
  const mine = [busy, first, second];
  const none = [linked.serverUuid, gone, idle];
  const read = async (limit: number, tasks: number) => {
    const { withRoom, full } = await readWaitingServers(db, limit, { posts: tasks, bytes: 1_000 });
    t.notOk([...withRoom, ...full].some((one) => none.includes(one)));
    return [withRoom.filter((one) => mine.includes(one)), full.filter((one) => mine.includes(one))];
  };
  t.same(await read(1_000, 2), [mine, []]);
  t.same(await read(1_000, 1), [mine.slice(1), mine.slice(0, 1)]);
  const { withRoom } = await readWaitingServers(db, 1_000, { posts: 1, bytes: 1_000 });
  t.same(await read(withRoom.length, 1), [mine.slice(1), []], 'a full server takes no place');
});
