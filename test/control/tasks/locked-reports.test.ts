/**
 * The end of a task about a VM changes the report of its server and the row of the VM. A
 * transaction that keeps one of these locked delays this task alone. The statements that end
 * several tasks wait for none of these rows, so no two of them can wait for each other.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import t, { type Test } from 'tap';
import { endPosts } from '../../../lib/control/legacy/post-store.ts';
import { storeReports } from '../../../lib/control/servers/server-store.ts';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { sweepTasks } from '../../../lib/control/tasks/deadlines/deadline-store.ts';
import { readInheritedTasks, settleInventory } from '../../../lib/control/tasks/dispatch/claim-store.ts';
import { recordReports } from '../../../lib/control/tasks/reports/report-store.ts';
import { taskEnds } from '../../../lib/control/tasks/store/task.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { withLimits } from '../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { runBehindLock } from '../../support/lock-waits.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { accept, backdate, claim, create, overdueMs, row, type Seat, seat } from './support/task-database.ts';

const startByMs = 60_000;
/**
 * Uuids in ascending order, so that the test uses the rows in the order in which they are locked.
 */
const uuids = (count: number) => Array.from({ length: count }, () => randomUUID()).sort();

async function world(t: Test, count = 2) {
  const { database, url } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  t.teardown(() => servers.stop());
  const run = randomUUID();
  const seats: Seat[] = [];
  for (const serverUuid of uuids(count)) {
    await servers.recordSysinfo(serverUuid, { UUID: serverUuid, Hostname: 'a' });
    seats.push(await seat(database, { serverUuid, run }));
  }
  const [first, second] = seats as [Seat, Seat];
  const creates = async ({ serverUuid }: Seat, vm = randomUUID(), id = randomUUID()) => {
    await create(database, serverUuid, { id, name: 'machine_create', params: { uuid: vm }, idempotent: true });
    return { id, vm, serverUuid };
  };
  const reports = (...vms: (readonly [Seat, ...string[]])[]) =>
    storeReports(
      database,
      vms.map(([{ serverUuid, epoch }, ...some]) => {
        const of = Object.fromEntries(some.map((uuid) => [uuid, { uuid, state: 'running' }]));
        return { serverUuid, epoch, report: { vms: of, memory: {}, disk: {} } };
      }),
    );
  const hold = async (sql: string) => {
    const holder = new pg.Client({ connectionString: url });
    await holder.connect();
    t.teardown(() => holder.end());
    await holder.query('begin');
    t.equal((await holder.query(sql)).rowCount, 1, 'the row is locked');
    return () => holder.query('commit');
  };
  return { database, url, seats, run, first, second, creates, reports, hold };
}

const reportOf = ({ serverUuid }: { serverUuid: string }) =>
  `select 1 from cnapi_server_reports where server_uuid = '${serverUuid}' for update`;
const claimOf = (vm: string) => `select 1 from cnapi_placement_claims where vm_uuid = '${vm}' for update`;
const rowOf = (vm: string) => `select 1 from cnapi_vms where _key = '${vm}' for update`;

type World = Awaited<ReturnType<typeof world>>;
type Creation = Awaited<ReturnType<World['creates']>>;

/**
 * The ways in which a statement ends several tasks: what goes before, and the statement, which
 * returns the ended.
 */
const ends: Record<
  string,
  { before(world: World, tasks: Creation[]): Promise<void>; end(world: World): Promise<string[]> }
> = {
  'a sweep of tasks that were not taken': {
    async before({ database }, tasks) {
      for (const { id } of tasks) await backdate(database, id, 3_600_000);
    },
    end: ({ database }) => sweepTasks(database, { startByMs, overdueMs: undefined }, 2),
  },
  'a sweep of tasks that take too long': {
    async before({ database, seats }, tasks) {
      for (const one of seats) await claim(database, one);
      for (const { id } of tasks) await backdate(database, id, 100 * 3_600_000);
    },
    end: ({ database }) => sweepTasks(database, { startByMs: undefined, overdueMs }, 2),
  },
  'the end of posts of a dead run': {
    async before({ database, seats, run }) {
      for (const one of seats) await claim(database, one);
      await database.query('update cnapi_tasks set posted_by = $1::uuid', [run]);
    },
    end: ({ database, run }) => endPosts(database, [run], 2),
  },
  inventories: {
    async before({ database, seats }) {
      for (const one of seats) await claim(database, one);
      for (const [n, one] of seats.entries()) seats[n] = await accept(database, one, { run: one.run });
    },
    async end({ database, seats, run }) {
      await database.query('update cnapi_roster_authority set run = $1::uuid', [run]);
      const sessions = new Map(seats.map((one) => [one.serverUuid, one]));
      const settlements = (await readInheritedTasks(database, seats, 100)).map((task) => ({
        task,
        session: sessions.get(task.serverUuid) as Seat,
        decision: { kind: 'fail', error: taskEnds.outcomeUnknown } as const,
      }));
      const { changed } = await settleInventory(database, run, settlements);
      return changed.map(({ id }) => id);
    },
  },
  'reports of their agents': {
    async before({ database, seats }) {
      for (const one of seats) await claim(database, one);
    },
    async end({ database }) {
      const { rows } = await database.query<{ id: string; serverUuid: string }>(
        `select id, server_uuid as "serverUuid" from cnapi_tasks where state = 'claimed' order by id`,
      );
      const error = { code: 'Failed', message: 'it did' };
      const { changed } = await recordReports(
        database,
        rows.map((subject) => ({
          subject: { ...subject, attempt: 1 },
          report: { name: 'failure', reportedAt: '2030-01-01', resultJson: undefined, error },
        })),
      );
      return changed.map(({ id }) => id);
    },
  },
};

for (const [name, { before, end }] of Object.entries(ends)) {
  for (const what of ['the report of a server', 'the row of a VM'])
    t.test(`${name}: with ${what} locked, the tasks of other servers end`, async (t) => {
      const w = await world(t);
      const ids = uuids(4);
      // More than one sweep ends at once, and before the others in the order of their ids.
      const blocked = [await w.creates(w.first, undefined, ids[0])];
      if (what === 'the report of a server')
        blocked.push(await w.creates(w.first, undefined, ids[1]), await w.creates(w.first, undefined, ids[2]));
      const free = await w.creates(w.second, undefined, ids[3]);
      await before(w, [...blocked, free]);
      const release = await w.hold(what === 'the row of a VM' ? rowOf(blocked[0]?.vm ?? '') : reportOf(w.first));
      t.same(await end(w), [free.id]);
      t.same(await end(w), [], 'what is locked waits');
      await release();
      const ended = [...(await end(w)), ...(await end(w))];
      t.same(
        ended.toSorted(),
        blocked.map(({ id }) => id),
        'and ends after that',
      );
      for (const { id } of [...blocked, free]) t.equal((await row(w.database, id)).state, 'ended');
    });

  t.test(`${name}: with the claim of a VM's room locked, its task and others end`, async (t) => {
    const w = await world(t);
    const tasks = [await w.creates(w.first), await w.creates(w.second)];
    for (const { vm, serverUuid } of tasks)
      await w.database.query(
        `insert into cnapi_placement_claims (vm_uuid, server_uuid, owner_uuid, ram, disk, cpu, created_at, expires_at)
           values ($1, $2, 'owner', 1, 0, 0, now() - interval '1 day', now() + interval '1 day')`,
        [vm, serverUuid],
      );
    await before(w, tasks);
    await w.hold(claimOf(tasks[0]?.vm ?? ''));
    t.same((await end(w)).toSorted(), tasks.map(({ id }) => id).toSorted());
  });
}

t.test('with the row of a VM locked, the reports of other servers are stored', async (t) => {
  const { first, second, reports, hold } = await world(t);
  const vm = randomUUID();
  await reports([first, vm], [second]);
  const release = await hold(rowOf(vm));
  const outcomes = await reports([first], [second, randomUUID()]);
  t.same([outcomes.get(first.serverUuid), outcomes.get(second.serverUuid)], ['locked', 'stored']);
  await release();
  t.equal((await reports([first])).get(first.serverUuid), 'stored');
});

t.test('reports of the same VMs by several servers do not wait for each other in a circle', async (t) => {
  const w = await world(t, 4);
  const [one, two, three, four] = w.seats as [Seat, Seat, Seat, Seat];
  const [first, own, last] = uuids(3) as [string, string, string];
  await w.reports([two, own]);
  await runBehindLock<[unknown, unknown]>(w.url, rowOf(own), [
    { name: 'last, first', run: () => w.reports([one, last], [two, first]) },
    { name: 'first, last', run: () => w.reports([three, first], [four, last]) },
  ]);
  await w.reports([two, first]);
  const { rows } = await w.database.query<{ _key: string }>('select _key from cnapi_vms order by _key');
  t.same(
    rows.map(({ _key }) => _key),
    [first, last],
    'each VM is stored once',
  );
});

t.test('the late end of a creation does not bring back a VM that was destroyed', async (t) => {
  const { database, first, creates, reports } = await world(t);
  const { id, vm, serverUuid } = await creates(first);
  await reports([first, vm]);
  await claim(database, first);
  const destroy = await create(database, serverUuid, { name: 'machine_destroy', params: { uuid: vm } });
  await claim(database, first);
  const end = (task: string, result: object) => {
    const report = { name: 'complete', reportedAt: '2030-01-01', resultJson: JSON.stringify(result) } as const;
    return recordReports(database, [{ subject: { id: task, serverUuid, attempt: 1 }, report }]);
  };
  await end(destroy, {});
  await end(id, { vm: { uuid: vm, state: 'running' } });
  t.equal((await row(database, id)).outcome, 'complete');
  t.same((await database.query('select _key from cnapi_vms')).rows, []);
});

t.test(
  'with the report of a server locked, a creation of a VM on it is refused as busy, and leaves nothing',
  async (t) => {
    const w = await world(t);
    await w.reports([w.first], [w.second]);
    const release = await w.hold(reportOf(w.first));
    const vm = randomUUID();
    const creation = { id: randomUUID(), name: 'machine_create', params: { uuid: vm } };
    const impatient = withLimits(w.database, { lockTimeoutMs: 300 });
    const refused = t.rejects(create(impatient, w.first.serverUuid, creation), { code: 'DatabaseBusy' });
    const other = await w.creates(w.second);
    await refused;
    const stored = async () => {
      const { rows } = await w.database.query<{ id: string }>(
        `select id::text from cnapi_tasks union select _key from cnapi_vms order by id`,
      );
      return rows.map(({ id }) => id);
    };
    t.same(await stored(), [other.id, other.vm].sort(), 'the uuid is not claimed');
    await release();
    await create(w.database, w.first.serverUuid, creation);
    t.same(await stored(), [other.id, other.vm, creation.id, vm].sort());
  },
);

t.test('when few places are left, few of the tasks that cannot be locked are tried', async (t) => {
  const { database, first, hold } = await world(t, 1);
  const ids = uuids(32);
  for (const id of ids) await create(database, first.serverUuid, { id, name: 'nop' });
  const [free = '', ...others] = ids;
  const last = others.pop();
  const lockSome = async (most: number) => {
    const found = await database.query<{ ids: string[] }>('select cnapi_lock_task_ends_up_to($1::uuid[], $2) as ids', [
      ids,
      most,
    ]);
    return found.rows[0]?.ids;
  };
  for (const id of others) await hold(`select from cnapi_tasks where id = '${id}' for update`);
  t.same(await lockSome(2), [free], 'a round for each of the first 20');
  t.same(await lockSome(32), [free, last], 'and one for all');
});
