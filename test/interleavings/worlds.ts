/**
 * The worlds in which pairs run, built by the product's own statements. Each has three servers, so
 * that there is an order for locking sets of rows, and for each server a task of every kind.
 * Anything due in a world is due by hours. Longer than 400 lines: one function for each world, all
 * on the same ground.
 */
import { randomUUID } from 'node:crypto';
import type { HeldDuty } from '../../lib/control/duty/duty.ts';
import { claimDuties, settleDuties } from '../../lib/control/duty/duty-store.ts';
import { recordHeartbeats } from '../../lib/control/legacy/heartbeat-store.ts';
import { claimPosts } from '../../lib/control/legacy/post-store.ts';
import { declareLapsed, insertRun } from '../../lib/control/roster/membership/instance-store.ts';
import {
  acceptSessions,
  type RunIdentity,
  recordInventories,
  recordLosses,
} from '../../lib/control/roster/status/roster-store.ts';
import { removeServer } from '../../lib/control/servers/server-store.ts';
import { Servers } from '../../lib/control/servers/servers.ts';
import { claimTasks, type InheritedRow } from '../../lib/control/tasks/dispatch/claim-store.ts';
import { recordReports } from '../../lib/control/tasks/reports/report-store.ts';
import { cancelTask, createTask } from '../../lib/control/tasks/store/task-store.ts';
import { addTicket, releaseTicket } from '../../lib/control/waitlist/ticket-store.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import type { JsonObject } from '../../lib/protocol/json/bounded-json.ts';
import { add, addOne, backdate, bounds, newTicket, type Place } from '../control/waitlist/support/waitlist-database.ts';
import { createDuties } from '../support/create-duties.ts';
import type { TableOf } from '../support/subsystem-coverage.ts';
import { createGraph, graphHoldsOf } from './annealer-statements.ts';
import { KIND } from './duty-statements.ts';
import { claimHoldsOf, createClaims } from './placement-statements.ts';
import { createPushJobs, type PushState, pushHoldsOf } from './push-worlds.ts';
import { createSchedules } from './schedule-statements.ts';
import type {
  ClaimKind,
  DutyKind,
  Graph,
  PushKind,
  QueueKind,
  ScheduleKind,
  Seat,
  Session,
  TaskKind,
  TicketKind,
  VmKind,
  WorkflowKind,
  World,
} from './statement.ts';
import { newVms, reportRunning, type Vms, vmHoldsOf } from './vm-world.ts';
import { createWorkflowJobs } from './workflow-statements.ts';

/**
 * Each world, and the tables whose rows differ in it: pairs that conflict in other tables do so in
 * another world in the same way. Of the statements on tasks, only those that read the roster depend
 * on its state.
 */
export const WORLDS = {
  linked: [
    'cnapi_roster_authority',
    'cnapi_instances',
    'cnapi_status',
    'cnapi_tasks',
    'cnapi_servers',
    'cnapi_server_reports',
  ],
  unknown: ['cnapi_roster_authority'],
  ownerless: ['cnapi_roster_authority', 'cnapi_instances'],
  old: ['cnapi_roster_authority', 'cnapi_status', 'cnapi_tasks', 'cnapi_instances', 'cnapi_servers'],
  nobody: ['cnapi_roster_authority', 'cnapi_status'],
  partly: ['cnapi_roster_authority', 'cnapi_status'],
  tickets: ['cnapi_waitlist_queues', 'cnapi_waitlist_tickets', 'cnapi_waitlist_keys'],
  broken: ['cnapi_waitlist_queues', 'cnapi_waitlist_tickets'],
  duties: ['cnapi_duties', 'cnapi_instances'],
  asked: ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy', 'cnapi_duties'],
  ready: ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy'],
  running: ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy', 'cnapi_tasks'],
  aborting: ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy', 'cnapi_tasks'],
  rehab: ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy'],
  scheduled: ['cnapi_push_schedules', 'cnapi_push_firings'],
  vms: ['cnapi_vms'],
  workflows: ['cnapi_workflow_jobs'],
  graph: ['cnapi_annealer', 'cnapi_noderoles', 'cnapi_noderole_edges', 'cnapi_noderole_runs'],
  claimed: ['cnapi_placement_claims'],
} as const satisfies Readonly<Record<string, readonly TableOf<'raced'>[]>>;
export type WorldName = keyof typeof WORLDS;
export const WORLD_NAMES = Object.keys(WORLDS) as WorldName[];

/** What is the same in each leg; the harness adds `inOrder`. */
export type StillWorld = Omit<World, 'inOrder' | 'uuid'> & {
  /** Rows that a third session can lock: by name, the statement that takes the lock. */
  holds: Record<string, string>;
  /** Tickets of the calm, the single and the due queues. */
  places: Record<string, Place>;
};

type Tasks = Partial<Record<TaskKind, InheritedRow[]>>;
type Tickets = Partial<Record<TicketKind, string>>;
type Duties = Partial<Record<DutyKind, HeldDuty[]>>;

export async function buildWorld(database: Database, name: WorldName): Promise<StillWorld> {
  const ground = await layGround(database);
  switch (name) {
    case 'linked':
    case 'unknown':
    case 'ownerless':
      return linkedWorld(ground, name);
    case 'old':
      return oldWorld(ground);
    case 'nobody':
      return nobodyWorld(ground);
    case 'partly':
      return partlyWorld(ground);
    case 'tickets':
    case 'broken':
      return ticketWorld(ground, name === 'broken');
    case 'duties':
      return dutyWorld(ground);
    case 'asked':
    case 'ready':
    case 'running':
    case 'aborting':
    case 'rehab':
      return pushWorld(ground, name);
    case 'scheduled':
      return scheduledWorld(ground);
    case 'vms':
      return vmWorld(ground);
    case 'workflows':
      return workflowWorld(ground);
    case 'graph':
      return graphWorld(ground);
    case 'claimed':
      return claimedWorld(ground);
    default:
      return name satisfies never;
  }
}

interface Ground {
  database: Database;
  me: RunIdentity;
  other: RunIdentity;
  gone: RunIdentity;
  renewed: string;
  seats: Seat[];
  tasks: Tasks;
  duties: Duties;
  pushJobs: Partial<Record<PushKind, HeldDuty>>;
  schedules: Partial<Record<ScheduleKind, string>>;
  workflowJobs: Partial<Record<WorkflowKind, HeldDuty>>;
  graph: Graph | undefined;
  vms: Vms;
  claims: Partial<Record<ClaimKind, string>>;
}

async function layGround(database: Database): Promise<Ground> {
  const [me, other, gone, next] = [
    await newRun(database),
    await newRun(database),
    await newRun(database),
    randomUUID(),
  ];
  await insertRun(database, next, identity(gone.cnapiUuid), null);
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  const uuids = [randomUUID(), randomUUID(), randomUUID()].sort();
  for (const uuid of uuids) await servers.recordSysinfo(uuid, { UUID: uuid, Hostname: 'one' });
  // The middle one, which most calls are about, has not reported yet.
  for (const uuid of uuids) if (uuid !== uuids[1]) await servers.recordReport(uuid, { vms: {} });
  await servers.stop();
  const seats = uuids.map((serverUuid): Seat => {
    const agent = { incarnation: randomUUID(), conn: 0, journalId: randomUUID() };
    return { serverUuid, run: null, epoch: 0, isRunning: false, lastRecord: 0, ...agent };
  });
  return {
    database,
    me,
    other,
    gone,
    renewed: next,
    seats,
    tasks: {},
    duties: {},
    pushJobs: {},
    schedules: {},
    workflowJobs: {},
    graph: undefined,
    vms: {},
    claims: {},
  };
}

async function newRun(database: Database): Promise<RunIdentity> {
  const writer = { cnapiUuid: randomUUID(), run: randomUUID() };
  await insertRun(database, writer.run, identity(writer.cnapiUuid), null);
  return writer;
}

const identity = (cnapiUuid: string) => {
  return { cnapiUuid, url: 'http://127.0.0.1:1', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
};

/**
 * A world whose agents are connected under epoch 2; then, on request, lost, or their instance dies.
 */
async function linkedWorld(ground: Ground, name: 'linked' | 'unknown' | 'ownerless'): Promise<StillWorld> {
  const { database, me, gone } = ground;
  const writer = name === 'ownerless' ? gone : me;
  await connect(ground, writer);
  await createTasks(ground, 'inherited');
  await claim(ground, writer.run);
  await recordInventories(database, sessionsOf(ground));
  await connect(ground, writer);
  for (const kind of ['sent', 'started', 'cancelling', 'ended'] as const) await createTasks(ground, kind);
  await createTasks(ground, 'overdue', { timeoutMs: 1 });
  await claim(ground, writer.run);
  await report(ground, 'started', { name: 'started' });
  await report(ground, 'overdue', { name: 'started' });
  await report(ground, 'ended', { name: 'complete', resultJson: '{}' });
  for (const { id } of ground.tasks.cancelling ?? []) await cancelTask(database, id);
  await createTasks(ground, 'queued');
  await createTasks(ground, 'stale');
  if (name === 'unknown') {
    await recordLosses(
      database,
      me.cnapiUuid,
      sessionsOf(ground).map((seat) => ({ ...seat, reason: 'closed' })),
    );
    ground.seats = ground.seats.map((seat) => ({ ...seat, isRunning: false }));
  }
  return finish(ground);
}

/** A world of agents that post heartbeats; an instance that is gone posted some of the tasks. */
async function oldWorld(ground: Ground): Promise<StillWorld> {
  const { database, me, gone, seats } = ground;
  const [recorded] = await recordHeartbeats(database, me.cnapiUuid, () =>
    seats.map(({ serverUuid }) => ({ serverUuid, ageMs: 0 })),
  );
  const heard = { epoch: 1, isRunning: true, lastRecord: recorded?.lastRecord ?? 0 };
  ground.seats = seats.map((seat) => ({ ...seat, ...heard }));
  const claim = { servers: seats.map(({ serverUuid }) => serverUuid), room: { posts: 100, bytes: 1_000_000 } };
  await createTasks(ground, 'left');
  await claimPosts(database, gone.run, claim);
  await createTasks(ground, 'posted');
  await claimPosts(database, me.run, claim);
  await createTasks(ground, 'queued');
  await createTasks(ground, 'stale');
  // A server that was removed long ago.
  await database.query(
    `insert into cnapi_status (server_uuid, last_heartbeat, cnapi_instance)
     values ($1::uuid, cnapi_now() - interval '2 days', $2::uuid)`,
    [randomUUID(), me.cnapiUuid],
  );
  return finish(ground);
}

/** Servers without a roster row yet. */
async function nobodyWorld(ground: Ground): Promise<StillWorld> {
  await createTasks(ground, 'queued');
  await createTasks(ground, 'stale');
  return finish(ground);
}

/** The first server has no roster row yet; the sessions of the others were lost. */
async function partlyWorld(ground: Ground): Promise<StillWorld> {
  const { database, me } = ground;
  const [first, ...others] = ground.seats as [Seat, ...Seat[]];
  ground.seats = others;
  await connect(ground, me);
  await recordLosses(
    database,
    me.cnapiUuid,
    sessionsOf(ground).map((seat) => ({ ...seat, reason: 'closed' })),
  );
  ground.seats = [first, ...ground.seats.map((seat) => ({ ...seat, isRunning: false }))];
  return finish(ground);
}

/**
 * Connected servers, and queues with a held lock. Broken: queues whose lock has no holder although
 * tickets wait.
 */
async function ticketWorld(ground: Ground, isBroken: boolean): Promise<StillWorld> {
  const { database, me } = ground;
  await connect(ground, me);
  const serverUuid = (ground.seats[1] as Seat).serverUuid;
  const place = (id: string): Place => ({ serverUuid, scope: 'vm', id });
  const places: Record<string, Place> = { calm: place('calm'), single: place('single') };
  const [active, next] = [await addOne(database, place('calm')), await addOne(database, place('calm'))];
  await add(database, place('calm'));
  const tickets: Tickets = { active, next, single: await addOne(database, place('single')) };
  for (const id of ['due 1', 'due 2', 'due 3']) {
    places[id] = place(id);
    const due = [await addOne(database, place(id)), await addOne(database, place(id))];
    await addTicket(database, newTicket(place(id)), bounds);
    await backdate(database, ...due);
    if (id === 'due 2') tickets.due = due[0] as string;
  }
  for (const { uuid } of await add(database, place('over'))) await releaseTicket(database, uuid);
  await database.query('alter table cnapi_waitlist_tickets disable trigger user');
  await database.query(
    `update cnapi_waitlist_tickets set created_at = created_at - interval '2 days', updated_at = updated_at - interval '2 days'
     where status = 'finished'`,
  );
  if (isBroken) {
    for (const id of [active, ...(await holders(database, ['due 1', 'due 3']))])
      await database.query('delete from cnapi_waitlist_tickets where uuid = $1::uuid', [id]);
    delete tickets.active;
  }
  await database.query('alter table cnapi_waitlist_tickets enable trigger user');
  return finish(ground, tickets, places);
}

/** Three of each kind; some ended days ago. */
async function dutyWorld(ground: Ground): Promise<StillWorld> {
  const { database, me, gone, duties } = ground;
  const ids = () => [randomUUID(), randomUUID(), randomUUID()].sort();
  const claimed = async (run: string) => {
    await createDuties(database, KIND, ids());
    return (await claimDuties(database, run, { kinds: [KIND], limit: 9 })).sort((a, b) => (a.id < b.id ? -1 : 1));
  };
  const settlement = { kind: 'end', outcome: 'complete' } as const;
  const ended = (await claimed(me.run)).map((duty) => ({ ...duty, settlement, pauseMs: 0 }));
  await settleDuties(database, me.run, ended);
  await database.query(`update cnapi_duties set ended_at = ended_at - interval '2 days' where state = 'ended'`);
  duties.held = await claimed(me.run);
  duties.left = await claimed(gone.run);
  const waiting = ids();
  await createDuties(database, KIND, waiting);
  duties.waiting = waiting.map((id) => ({ id, kind: KIND, run: me.run, generation: 0, failures: 0 }));
  return finish(ground);
}

/** Connected servers, and push jobs of all of them in one state of their life. */
async function pushWorld(ground: Ground, state: PushState): Promise<StillWorld> {
  await connect(ground, ground.me);
  ground.pushJobs = await createPushJobs(ground.database, ground.me.run, ground.seats, state);
  if (state === 'rehab') await removeLastServer(ground);
  return finish(ground);
}

async function removeLastServer({ database, me, seats }: Ground): Promise<void> {
  const last = seats.at(-1);
  if (last === undefined) throw new Error('there is no server');
  await removeServer(database, me.cnapiUuid, last.serverUuid);
  Object.assign(last, { isRunning: false });
}

/** Connected servers, and schedules of push jobs. */
async function scheduledWorld(ground: Ground): Promise<StillWorld> {
  await connect(ground, ground.me);
  ground.schedules = await createSchedules(ground.database, randomUUID());
  return finish(ground);
}

/** Connected servers with VMs, and tasks about these. */
async function vmWorld(ground: Ground): Promise<StillWorld> {
  const { database, me } = ground;
  await connect(ground, me);
  const vms = newVms(ground.seats);
  ground.vms = vms;
  await reportRunning(database, ground.seats, vms);
  const of = (name: string, kind: VmKind) => ({
    name,
    paramsOf: ({ serverUuid }: Seat) => ({ uuid: vms[kind].get(serverUuid) }),
  });
  await createTasks(ground, 'creating', of('machine_create', 'creating'));
  await createTasks(ground, 'stopping', of('machine_shutdown', 'running'));
  await createTasks(ground, 'destroying', of('machine_destroy', 'running'));
  await claim(ground, me.run);
  return finish(ground);
}

/** Connected servers with a workflow job each. */
async function workflowWorld(ground: Ground): Promise<StillWorld> {
  await connect(ground, ground.me);
  ground.workflowJobs = await createWorkflowJobs(ground.database, ground.me.run, ground.seats);
  return finish(ground);
}

/** Connected servers with a graph of noderoles. */
async function graphWorld(ground: Ground): Promise<StillWorld> {
  await connect(ground, ground.me);
  ground.graph = await createGraph(ground.database, ground.me.run, ground.seats);
  return finish(ground);
}

/** A world in which one of the connected servers has room for one more VM. */
async function claimedWorld(ground: Ground): Promise<StillWorld> {
  await connect(ground, ground.me);
  ground.claims = await createClaims(ground.database, ground.seats[1]);
  return finish(ground);
}

async function holders(database: Database, ids: readonly string[]): Promise<string[]> {
  const { rows } = await database.query<{ uuid: string }>(
    `select uuid from cnapi_waitlist_tickets where status = 'active' and id = any ($1::text[])`,
    [ids],
  );
  return rows.map(({ uuid }) => uuid);
}

async function connect(ground: Ground, writer: RunIdentity): Promise<void> {
  const hellos = ground.seats.map((seat) => ({ ...seat, conn: seat.conn + 1 }));
  const accepted = await acceptSessions(ground.database, writer, hellos);
  ground.seats = hellos.map((seat) => {
    return { ...seat, run: writer.run, epoch: accepted.get(seat.serverUuid)?.epoch ?? 0, isRunning: true };
  });
}

const sessionsOf = ({ seats }: Ground): Session[] => seats.filter((seat): seat is Session => seat.run !== null);

interface TasksToCreate {
  timeoutMs?: number;
  name?: string;
  paramsOf?: (seat: Seat) => JsonObject;
}

async function createTasks(
  ground: Ground,
  kind: TaskKind,
  { timeoutMs = 3_600_000, name = 'nop', paramsOf = () => ({}) }: TasksToCreate = {},
): Promise<void> {
  const made = ground.seats.map((seat) => {
    const { serverUuid, journalId } = seat;
    const row: InheritedRow = {
      ...{ id: randomUUID(), serverUuid, journalId, attempt: kind === 'queued' || kind === 'stale' ? 0 : 1 },
      ...{ idempotent: false, uncertain: false, wasAccepted: false, hasStarted: false, cancelRequested: false },
    };
    return { row, params: paramsOf(seat) };
  });
  ground.tasks[kind] = made.map(({ row }) => row);
  const given = { name, timeoutMs, requestHash: 'hash', requestId: undefined };
  for (const { row, params } of made)
    await createTask(ground.database, { ...row, ...given, params, idempotencyKey: undefined });
}

async function claim(ground: Ground, run: string): Promise<void> {
  await claimTasks(ground.database, run, { sessions: sessionsOf(ground), resendMs: 3_600_000 });
}

type Reported = { name: 'started' } | { name: 'complete'; resultJson: string };

async function report({ database, tasks }: Ground, kind: TaskKind, reported: Reported): Promise<void> {
  const reports = (tasks[kind] ?? []).map((subject) => ({
    subject,
    report: { reportedAt: '2030-01-01', ...reported },
  }));
  await recordReports(database, reports);
}

async function finish(ground: Ground, tickets: Tickets = {}, places: Record<string, Place> = {}): Promise<StillWorld> {
  const {
    database,
    me,
    other,
    gone,
    renewed,
    seats,
    tasks,
    duties,
    pushJobs,
    schedules,
    workflowJobs,
    graph,
    vms,
    claims,
  } = ground;
  await declareLapsed(database, [{ run: gone.run, beat: 0 }]);
  await backdateAll(database, tasks);
  const seat = seats[1] as Seat;
  const queues: Partial<Record<QueueKind, Place>> = { ...places };
  const calm = places.calm;
  if (calm !== undefined) queues.new = { ...calm, id: 'new' };
  return {
    ...{ me, other, gone, renewed, seats, seat },
    beatOf: () => 0,
    isDead: (run) => run === gone.run,
    tasks: (kind) => tasks[kind] ?? [],
    task: (kind) => tasks[kind]?.find(({ serverUuid }) => serverUuid === seat.serverUuid),
    ticket: (kind) => tickets[kind],
    queue: (kind) => queues[kind],
    duties: (kind) => duties[kind] ?? [],
    pushJob: (kind) => pushJobs[kind],
    workflowJob: (kind) => workflowJobs[kind],
    graph,
    schedule: (kind) => schedules[kind],
    vm: (kind, serverUuid) => vms[kind]?.get(serverUuid),
    claimed: (kind) => claims[kind],
    places,
    holds: {
      ...holdsOf({ seat, seats, tasks, tickets, places, queues, duties, runs: { me, gone } }),
      ...pushHoldsOf(seat, pushJobs),
      ...vmHoldsOf(seat, vms),
      ...claimHoldsOf(claims),
      ...graphHoldsOf(graph),
      ...(schedules.due === undefined
        ? {}
        : { 'push schedule': `select 1 from cnapi_push_schedules where id = '${schedules.due}' for update` }),
    },
  };
}

/** Hours and days ago, for rows that are to be due. */
async function backdateAll(database: Database, tasks: Tasks): Promise<void> {
  const ids = (...kinds: TaskKind[]) => kinds.flatMap((kind) => (tasks[kind] ?? []).map(({ id }) => id));
  await database.query(
    `update cnapi_tasks set queued_at = queued_at - interval '2 hours', queued_tick = queued_tick - 7200 where id = any ($1::uuid[])`,
    [ids('stale')],
  );
  await database.query(
    `update cnapi_tasks set claimed_at = claimed_at - interval '3 hours', sent_at = sent_at - interval '3 hours',
       started_at = started_at - interval '3 hours', accepted_at = accepted_at - interval '3 hours',
       worked_tick = worked_tick - 10800
     where id = any ($1::uuid[])`,
    [ids('sent', 'overdue')],
  );
  await database.query(`update cnapi_tasks set ended_at = ended_at - interval '2 days' where id = any ($1::uuid[])`, [
    ids('ended'),
  ]);
  await database.query(`update cnapi_instances set ended_at = ended_at - interval '2 days' where state = 'dead'`);
  await database.query(`update cnapi_status_history set since = since - interval '2 days'`);
}

interface Held {
  seat: Seat;
  seats: readonly Seat[];
  tasks: Tasks;
  tickets: Tickets;
  places: Record<string, Place>;
  queues: Partial<Record<QueueKind, Place>>;
  duties: Duties;
  runs: { me: RunIdentity; gone: RunIdentity };
}

/**
 * Rows of the middle server, so that a statement that goes through all three holds one row and
 * waits for the next.
 */
function holdsOf({ seat, tasks, tickets, places, queues, duties, runs }: Held): Record<string, string> {
  const row = (table: string, column: string, value: string) =>
    `select 1 from ${table} where ${column} = '${value}' for update`;
  const holds: Record<string, string> = {
    'roster row': row('cnapi_roster_authority', 'server_uuid', seat.serverUuid),
    'my run': row('cnapi_instances', 'run', runs.me.run),
    'dead run': row('cnapi_instances', 'run', runs.gone.run),
    heartbeats: row('cnapi_status', 'server_uuid', seat.serverUuid),
    'server document': row('cnapi_servers', 'uuid', seat.serverUuid),
    'roster row to come': `insert into cnapi_roster_authority (server_uuid, epoch, status, reason, since)
      values ('${seat.serverUuid}', 1, 'unknown', 'closed', cnapi_now()) on conflict do nothing`,
    'heartbeats to come': `insert into cnapi_status (server_uuid, last_heartbeat, cnapi_instance)
      values ('${seat.serverUuid}', cnapi_now(), '${runs.me.cnapiUuid}') on conflict do nothing`,
    'key to come': `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, idempotency_key,
        request_hash, created_at, queued_at)
      values (gen_random_uuid(), '${seat.serverUuid}', 'nop', '{}', 1, false, 'key', 'hash', cnapi_now(), cnapi_now())`,
  };
  for (const [kind, rows] of Object.entries(tasks)) {
    const found = rows.find(({ serverUuid }) => serverUuid === seat.serverUuid);
    if (found !== undefined) holds[`task ${kind}`] = row('cnapi_tasks', 'id', found.id);
  }
  for (const [kind, rows] of Object.entries(duties))
    if (rows[1] !== undefined) holds[`duty ${kind}`] = row('cnapi_duties', 'id', rows[1].id);
  for (const [kind, uuid] of Object.entries(tickets))
    holds[`ticket ${kind}`] = row('cnapi_waitlist_tickets', 'uuid', uuid);
  for (const [kind, { serverUuid, id }] of Object.entries(places))
    holds[`queue ${kind}`] =
      `select 1 from cnapi_waitlist_queues where server_uuid = '${serverUuid}' and id = '${id}' for update`;
  if (queues.new !== undefined)
    holds['queue to come'] =
      `insert into cnapi_waitlist_queues (server_uuid, scope, id, last_place, created_at, updated_at)
      values ('${queues.new.serverUuid}', 'vm', 'new', 1, cnapi_now(), cnapi_now())`;
  return holds;
}
