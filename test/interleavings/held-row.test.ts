/**
 * Another transaction locks one row of a coordination table until the end of the test: all work on
 * other rows continues (law 9). The drivers and statements of each subsystem work on four objects,
 * of which the second is locked.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import t, { type Test } from 'tap';
import { endPosts, readDeadPostingRuns } from '../../lib/control/legacy/post-store.ts';
import { Authority } from '../../lib/control/roster/accept/authority.ts';
import { ProbeCaller } from '../../lib/control/roster/accept/probe.ts';
import {
  declareLapsed,
  incrementBeat,
  insertRun,
  readLive,
} from '../../lib/control/roster/membership/instance-store.ts';
import { type Session, SessionTable } from '../../lib/control/roster/sessions/session.ts';
import { SessionLosses } from '../../lib/control/roster/sessions/session-losses.ts';
import { markOwnerlessUnknown, readRow } from '../../lib/control/roster/status/roster-store.ts';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { sweepTasks } from '../../lib/control/tasks/deadlines/deadline-store.ts';
import { Reconciler } from '../../lib/control/tasks/dispatch/reconciler.ts';
import { Recorder } from '../../lib/control/tasks/reports/recorder.ts';
import type { TaskSession } from '../../lib/control/tasks/sessions.ts';
import { expireTickets, repairQueues } from '../../lib/control/waitlist/ticket-store.ts';
import type { PostgresDatabase } from '../../lib/platform/postgres/pool.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { HealthyTimer } from '../../lib/platform/time/healthy-timer.ts';
import type { HelloFrame } from '../../lib/protocol/link/frames.ts';
import { FakeAgent, startInstance } from '../control/tasks/support/fake-agents.ts';
import { accept, backdate, claim, create, row, seat } from '../control/tasks/support/task-database.ts';
import {
  addOne,
  backdate as backdateTickets,
  newQueue,
  statusOf,
} from '../control/waitlist/support/waitlist-database.ts';
import { idleSocket } from '../support/idle-socket.ts';
import { createMemoryBus, MemoryHub } from '../support/memory-bus.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { freshDatabase } from '../support/postgres.ts';
import { tablesFor } from '../support/subsystem-coverage.ts';
import { until } from '../support/until.ts';
import { dutyWorks } from './held-row-duties.ts';
import { pushWorks } from './held-row-push.ts';
import { legacyAgentWorks, postWorks, serverWorks } from './held-row-servers.ts';
import { heldOf, NAMES, others, ports, turns, type Work, workOn } from './held-row-work.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const socket = idleSocket({ answersProbe: async () => false });

async function rosterWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const writer = { cnapiUuid: randomUUID(), run: randomUUID() };
  const dead = { cnapiUuid: randomUUID(), run: randomUUID() };
  const sessions = new SessionTable();
  const sessionLosses = new SessionLosses({ database, sessions, cnapiUuid: writer.cnapiUuid, ...ports });
  const bus = createMemoryBus({ hub: new MemoryHub(), random: systemRandom, ...ports, beatMs: 50 });
  const healthyTimer = new HealthyTimer({ clock: systemClock, checkMs: 250 });
  const probes = new ProbeCaller({ bus, sessions, run: () => writer.run, healthyTimer, random: systemRandom });
  const deps = { database, arrivalDatabase: database, sessions, sessionLosses, probes, bus, ...ports };
  const authority = new Authority({ ...deps, writer: () => writer });
  const before = new Authority({ ...deps, sessions: new SessionTable(), writer: () => dead });
  t.teardown(() => Promise.all([sessionLosses.stop(), bus.stop()]));

  const hello = (serverUuid = randomUUID()): HelloFrame => ({
    type: 'hello',
    version: 1,
    capabilities: [],
    serverUuid,
    epoch: 0,
    incarnation: randomUUID(),
    conn: 1,
    journalId: randomUUID(),
    bootId: '',
    agentVersion: '1',
    sysinfoDigest: '',
  });
  const accept = (by: Authority, one: HelloFrame) => by.accept({ hello: one, socket, isOpen: () => true });
  const connected = async (by: Authority) => {
    const hellos = NAMES.map(() => hello());
    await Promise.all(hellos.map((one) => accept(by, one)));
    return hellos;
  };
  const rows = (hellos: readonly HelloFrame[]) => Promise.all(hellos.map((one) => readRow(database, one.serverUuid)));
  const held = (hellos: readonly HelloFrame[]) => ({
    cnapi_roster_authority: `server_uuid = '${heldOf(hellos).serverUuid}'`,
  });
  const work = (
    name: string,
    hellos: readonly HelloFrame[],
    rest: Pick<Work, 'begin'> & { isSo: (row: Row) => boolean },
  ) => ({
    name,
    holds: held(hellos),
    begin: rest.begin,
    isDone: async () => others(await rows(hellos)).every(rest.isSo),
    isWhole: async () => (await rows(hellos)).every(rest.isSo),
  });
  type Row = Awaited<ReturnType<typeof readRow>>;

  const accepted = await connected(authority);
  const inventoried = await connected(authority);
  const lost = await connected(authority);
  const orphaned = await connected(before);
  const again = (one: HelloFrame) => ({ ...one, conn: 2, epoch: 1 });
  const sessionOf = ({ serverUuid }: HelloFrame) => sessions.get(serverUuid) as Session;
  const orphans = orphaned.map(({ serverUuid }) => ({ serverUuid, run: dead.run, epoch: 1 }));
  return [
    work('accepts', accepted, {
      begin: () => {
        // Items behind the first one share one statement. A refused agent connects again.
        accept(authority, hello()).catch(() => undefined);
        for (const one of accepted) void patiently(() => accept(authority, again(one)));
      },
      isSo: (row) => row?.epoch === 2,
    }),
    work('inventories', inventoried, {
      begin: () => {
        // A link retries, too.
        for (const one of [heldOf(inventoried), ...others(inventoried)])
          void patiently(() => authority.confirmInventory(sessionOf(one)));
      },
      isSo: (row) => row?.inventoryEpoch === 1,
    }),
    work('losses', lost, {
      begin: () => {
        for (const one of lost) sessionLosses.lose(sessionOf(one), 'closed');
      },
      isSo: (row) => row?.status === 'unknown',
    }),
    work('ownerless rows', orphaned, {
      begin: turns(t, () => markOwnerlessUnknown(database, writer, orphans)),
      isSo: (row) => row?.status === 'unknown',
    }),
  ];

  async function patiently(ask: () => Promise<unknown>): Promise<void> {
    for (;;) {
      const answer = await ask().catch(() => undefined);
      if (answer !== undefined) return;
    }
  }
}

async function taskWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const recorder = new Recorder({ database, ...ports, onChanged: () => {}, onStored: () => {} });
  t.teardown(() => recorder.stop());
  const seats = await Promise.all(NAMES.map(() => seat(database)));
  const tasks = async (isClaimed: boolean) => {
    const ids = await Promise.all(seats.map(({ serverUuid }) => create(database, serverUuid)));
    if (isClaimed) for (const one of seats) await claim(database, one);
    return ids;
  };
  const state = async (ids: readonly string[]) => Promise.all(ids.map(async (id) => (await row(database, id)).state));
  const work = (name: string, ids: readonly string[], begin: () => void): Work => ({
    name,
    holds: { cnapi_tasks: `id = '${heldOf(ids)}'` },
    begin,
    isDone: async () => others(await state(ids)).every((one) => one === 'ended'),
    isWhole: async () => (await state(ids)).every((one) => one === 'ended'),
  });

  const reported = await tasks(true);
  const posted = await tasks(true);
  await database.query('update cnapi_tasks set posted_by = $1::uuid where id = any ($2::uuid[])', [
    randomUUID(),
    posted,
  ]);
  const overdue = await tasks(false);
  for (const id of overdue) await backdate(database, id, 3_600_000);
  const instance = await startInstance(t, { database, hub: new MemoryHub() });
  const agents = NAMES.map(() => new FakeAgent());
  for (const agent of agents) await agent.connect(instance);
  // The results of their inventories are complete. A claim in progress would take the tasks before
  // one of them is locked.
  await until(() => instance.tasks.stats().inventories + instance.tasks.stats().wanted === 0, 'claims to end');
  const given = await Promise.all(
    agents.map((agent) => create(database, agent.serverUuid, { name: 'nop', timeoutMs: 3_600_000 })),
  );
  const servers = agents.map(({ serverUuid }) => serverUuid);
  return [
    work('reports', reported, () => {
      for (const [n, id] of reported.entries()) {
        const subject = { id, serverUuid: seats[n]?.serverUuid as string, attempt: 1 };
        recorder.endOfPost(subject, { name: 'complete', reportedAt: '', resultJson: '{}' }, () => {});
      }
    }),
    work(
      'sweeps',
      overdue,
      turns(t, () => sweepTasks(database, { startByMs: 60_000, overdueMs: undefined })),
    ),
    work(
      'posts of dead runs',
      posted,
      turns(t, async () =>
        endPosts(
          database,
          (await readDeadPostingRuns(database)).map(({ run }) => run),
        ),
      ),
    ),
    {
      ...work('claims', given, () => {
        instance.tasks.hintSessions(servers);
      }),
      holds: {
        cnapi_tasks: `id = '${heldOf(given)}'`,
        cnapi_roster_authority: `server_uuid = '${heldOf(servers)}'`,
      },
    },
  ];
}

/** Puts tasks of earlier sessions back into the queue, because their agents do not know of them. */
async function inventoryWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const run = randomUUID();
  const before = await Promise.all(NAMES.map(() => seat(database)));
  const ids = await Promise.all(before.map(({ serverUuid }) => create(database, serverUuid)));
  for (const one of before) await claim(database, one);
  const now = await Promise.all(before.map((one) => accept(database, one, { run })));
  const sessions = new Map<string, TaskSession>(
    now.map((one) => [
      one.serverUuid,
      { ...one, capabilities: new Set<string>(), isBackedUp: false, unsentBytes: 0, send: () => true },
    ]),
  );
  const reconciler = new Reconciler({
    database,
    sessions: { run: () => run, isFull: false, get: (serverUuid) => sessions.get(serverUuid) },
    ...ports,
    onChanged: () => {},
    onSettled: () => {},
  });
  t.teardown(() => reconciler.stop());
  return [
    workOn(ids, {
      name: 'inventories of tasks',
      holds: {
        cnapi_tasks: `id = '${heldOf(ids)}'`,
        cnapi_roster_authority: `server_uuid = '${heldOf(before).serverUuid}'`,
      },
      begin: () => {
        // Two are settled by themselves, and those behind them share one statement.
        const [first, held, third, last] = [...sessions.values()];
        for (const session of [first, third, held, last])
          if (session) reconciler.add(session, { type: 'inventory', epoch: session.epoch, tasks: [] });
      },
      isSo: async (id) => (await row(database, id)).state === 'queued',
    }),
  ];
}

async function ticketWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const pairs = async () => {
    const queues = NAMES.map(() => newQueue());
    const active = await Promise.all(queues.map((queue) => addOne(database, queue)));
    const next = await Promise.all(queues.map((queue) => addOne(database, queue)));
    return { active, next };
  };
  const work = (name: string, { active, next }: Awaited<ReturnType<typeof pairs>>, begin: () => void): Work => {
    const isActive = async (uuids: readonly string[]) =>
      (await Promise.all(uuids.map((uuid) => statusOf(database, uuid)))).every((status) => status === 'active');
    const queue = `key = (select queue from cnapi_waitlist_tickets where uuid = '${heldOf(next)}')`;
    return {
      name,
      holds: { cnapi_waitlist_queues: queue, cnapi_waitlist_tickets: `uuid = '${heldOf(active)}'` },
      begin,
      isDone: () => isActive(others(next)),
      isWhole: () => isActive(next),
    };
  };
  const due = await pairs();
  await backdateTickets(database, ...due.active);
  const broken = await pairs();
  const expiry = work(
    'expired tickets',
    due,
    turns(t, () => expireTickets(database, 2)),
  );
  const repair = work(
    'queues without a holder',
    broken,
    turns(t, () => repairQueues(database, 2)),
  );
  await database.query('delete from cnapi_waitlist_tickets where uuid = any ($1::uuid[])', [broken.active]);
  const { cnapi_waitlist_queues = 'false' } = repair.holds;
  return [expiry, { ...repair, holds: { cnapi_waitlist_queues } }];
}

async function beatWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const identity = (cnapiUuid: string) => ({ cnapiUuid, url: '', host: '127.0.0.1', port: 1, pid: 1, version: '0' });
  const runs = NAMES.map(() => randomUUID());
  const lapsed = NAMES.map(() => randomUUID());
  for (const run of [...runs, ...lapsed]) await insertRun(database, run, identity(run), null);
  const beatsOf = async () => new Map((await readLive(database)).map(({ run, beat }) => [run, beat]));
  const isBeating = async (some: readonly string[]) => {
    const beats = await beatsOf();
    return some.every((run) => (beats.get(run) ?? 0) > 0);
  };
  const isDead = async (some: readonly string[]) => {
    const beats = await beatsOf();
    return !some.some((run) => beats.has(run));
  };
  return [
    {
      name: 'beats',
      holds: { cnapi_instances: `run = '${heldOf(runs)}'` },
      begin: () => {
        for (const run of runs) turns(t, () => incrementBeat(database, run, { agents: 0 }))();
      },
      isDone: () => isBeating(others(runs)),
      isWhole: () => isBeating(runs),
    },
    {
      name: 'lapsed leases',
      holds: { cnapi_instances: `run = '${heldOf(lapsed)}'` },
      begin: turns(t, () =>
        declareLapsed(
          database,
          lapsed.map((run) => ({ run, beat: 0 })),
        ),
      ),
      isDone: () => isDead(others(lapsed)),
      isWhole: () => isDead(lapsed),
    },
  ];
}

const GROUPS = [
  rosterWorks,
  taskWorks,
  inventoryWorks,
  ticketWorks,
  beatWorks,
  serverWorks,
  legacyAgentWorks,
  postWorks,
  dutyWorks,
  pushWorks,
];

for (const table of tablesFor('held')) {
  t.test(`with one row of ${table} locked, work on other rows continues`, async (t) => {
    const { url, open } = await freshDatabase(t, { migrations });
    const database = open({ maxConnections: 20 });
    const groups = GROUPS.map((make) => make(t, database));
    const works = (await Promise.all(groups)).flat();
    const holder = new pg.Client({ connectionString: url });
    await holder.connect();
    t.teardown(() => holder.end());
    await holder.query('begin');
    for (const { holds } of works) {
      if (holds[table] !== undefined)
        t.equal((await holder.query(`select 1 from ${table} where ${holds[table]} for update`)).rowCount, 1);
    }
    for (const { begin } of works) begin();
    for (const { name, isDone } of works) await t.resolves(until(isDone, `${name} of the others`), `${name} continue`);
    const blocked = works.filter(({ holds }) => holds[table] !== undefined);
    for (const { name, isWhole } of blocked) t.equal(await isWhole(), false, `${name}: the row is still locked`);
    await holder.query('commit');
    for (const { name, isWhole } of works)
      await t.resolves(until(isWhole, `all ${name}`), `${name}: the locked one is done too`);
  });
}
