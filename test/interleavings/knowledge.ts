/**
 * What the clients of the random mix act on: all rows as they were read a moment ago. For sixteen
 * clients at once this is already out of date, which makes them conflict.
 */
import { randomUUID } from 'node:crypto';
import type { HeldDuty } from '../../lib/control/duty/duty.ts';
import type { RunIdentity } from '../../lib/control/roster/status/roster-store.ts';
import type { InheritedRow } from '../../lib/control/tasks/dispatch/claim-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import type { Place } from '../control/waitlist/support/waitlist-database.ts';
import type { DutyKind, Seat, TaskKind, TicketKind, World } from './statement.ts';

export interface Knowledge {
  live: RunIdentity[];
  dead: RunIdentity[];
  beats: Map<string, number>;
  seats: Seat[];
  tasks: KnownTask[];
  tickets: { uuid: string; status: string; isDue: boolean }[];
  duties: (HeldDuty & { kindOf: DutyKind })[];
  /** Servers whose document was deleted. */
  removed: string[];
}

interface KnownTask extends InheritedRow {
  kinds: TaskKind[];
  posted_by: string | null;
}

const MAX_TASKS = 200;
const MAX_TICKETS = 100;
const MAX_DUTIES = 50;
/** Few enough that clients conflict. */
const QUEUES = 4;
const SERVERS_AT_ONCE = 3;

export async function readKnowledge(database: Queryable, servers: readonly string[]): Promise<Knowledge> {
  const [instances, seats, tasks, tickets, duties] = await Promise.all([
    readInstances(database),
    readSeats(database, servers),
    readTasks(database),
    readTickets(database),
    readDuties(database),
  ]);
  const { rows } = await database.query<{ uuid: string }>('select uuid from cnapi_servers where uuid is not null');
  const documents = rows.map(({ uuid }) => uuid);
  return { ...instances, seats, tasks, tickets, duties, removed: servers.filter((uuid) => !documents.includes(uuid)) };
}

async function readInstances(database: Queryable): Promise<Pick<Knowledge, 'live' | 'dead' | 'beats'>> {
  const { rows } = await database.query<RunIdentity & { state: string; beat: number }>(
    `select run, cnapi_uuid as "cnapiUuid", state, beat from cnapi_instances order by started_at desc limit 50`,
  );
  return {
    live: rows.filter(({ state }) => state === 'live'),
    dead: rows.filter(({ state }) => state === 'dead'),
    beats: new Map(rows.map(({ run, beat }) => [run, beat])),
  };
}

async function readSeats(database: Queryable, servers: readonly string[]): Promise<Seat[]> {
  const { rows } = await database.query<Seat & { incarnation: string | null; journalId: string | null }>(
    `select s.uuid as "serverUuid", r.run, coalesce(r.epoch, 0) as epoch, coalesce(r.status = 'running', false) as "isRunning",
       r.incarnation, coalesce(r.conn, 0) as conn, r.journal_id as "journalId", coalesce(h.last_record, 0) as "lastRecord"
     from unnest($1::uuid[]) as s (uuid)
       left join cnapi_roster_authority r on r.server_uuid = s.uuid left join lateral (
         select max(record) as last_record from (
           select last_record from cnapi_status where server_uuid = s.uuid
           union all select id from cnapi_recent_legacy_records() where s.uuid = any (servers)) as known (record)) h on true`,
    [servers],
  );
  return rows.map((row) => ({
    ...row,
    incarnation: row.incarnation ?? randomUUID(),
    journalId: row.journalId ?? randomUUID(),
  }));
}

async function readTasks(database: Queryable): Promise<KnownTask[]> {
  const { rows } = await database.query<
    Omit<KnownTask, 'kinds'> & Record<'is_old' | 'is_posted' | 'is_left' | 'is_started', boolean> & { state: string }
  >(
    `select t.id, t.server_uuid as "serverUuid", t.attempt, t.journal_id as "journalId", t.idempotent, t.uncertain,
       t.accepted_at is not null as "wasAccepted", t.cancel_requested_at is not null as "cancelRequested",
       t.state, t.epoch < r.epoch as is_old, t.posted_by, t.posted_by is not null as is_posted, t.started_at is not null as is_started,
       exists (select 1 from cnapi_instances i where i.run = t.posted_by and i.state = 'dead') as is_left
     from cnapi_tasks t left join cnapi_roster_authority r on r.server_uuid = t.server_uuid
     order by t.state = 'ended', t.created_at desc limit $1::int`,
    [MAX_TASKS],
  );
  return rows.map((row) => ({ ...row, kinds: kindsOf(row) }));
}

function kindsOf(row: {
  state: string;
  is_old: boolean;
  is_posted: boolean;
  is_left: boolean;
  is_started: boolean;
  cancelRequested: boolean;
}): TaskKind[] {
  if (row.state === 'ended') return ['ended'];
  if (row.state === 'queued') return ['queued', 'stale'];
  if (row.is_posted) return row.is_left ? ['posted', 'left'] : ['posted'];
  return [
    ...(row.is_started ? (['started', 'overdue'] as const) : (['sent'] as const)),
    ...(row.is_old ? (['inherited'] as const) : []),
    ...(row.cancelRequested ? (['cancelling'] as const) : []),
  ];
}

async function readTickets(database: Queryable): Promise<Knowledge['tickets']> {
  const { rows } = await database.query<Knowledge['tickets'][number]>(
    `select uuid, status, expires_at <= cnapi_now() as "isDue" from cnapi_waitlist_tickets
     order by status in ('finished', 'expired'), created_at desc limit $1::int`,
    [MAX_TICKETS],
  );
  return rows;
}

async function readDuties(database: Queryable): Promise<Knowledge['duties']> {
  const { rows } = await database.query<Knowledge['duties'][number]>(
    `select d.id, d.kind, coalesce(d.run, '00000000-0000-0000-0000-000000000000') as run, d.generation, d.failures,
         case when d.state = 'waiting' then 'waiting' when i.state = 'live' then 'held' else 'left' end as "kindOf"
       from cnapi_duties d left join cnapi_instances i on i.run = d.run
       where d.state <> 'ended' order by d.created_at desc limit $1::int`,
    [MAX_DUTIES],
  );
  return rows;
}

/** The world as one client sees it at one moment; `fraction` is its probability. */
export function worldFrom(known: Knowledge, fraction: () => number): World {
  const pick = <Item>(items: readonly Item[]): Item | undefined => items[Math.floor(fraction() * items.length)];
  const nobody: RunIdentity = { cnapiUuid: randomUUID(), run: randomUUID() };
  const seats = shuffled(known.seats, fraction).slice(0, SERVERS_AT_ONCE);
  const ofKind = (kind: TaskKind) => known.tasks.filter(({ kinds }) => kinds.includes(kind));
  const senders = ofKind('left').map(({ posted_by }) => posted_by);
  const queues = Array.from(
    { length: QUEUES },
    (_, n): Place => ({
      serverUuid: n % 2 ? 'default' : (known.seats[0]?.serverUuid ?? ''),
      scope: 'vm',
      id: `queue ${n}`,
    }),
  );
  return {
    me: pick(known.live) ?? nobody,
    other: pick(known.live) ?? nobody,
    gone: pick(known.dead.filter(({ run }) => senders.includes(run))) ?? pick(known.dead) ?? nobody,
    renewed: (pick(known.live) ?? nobody).run,
    beatOf: (run) => known.beats.get(run) ?? 0,
    isDead: (run) => known.dead.some((writer) => writer.run === run),
    seats,
    seat: seats[0] as Seat,
    tasks: (kind) => shuffled(ofKind(kind), fraction).slice(0, 5),
    task: (kind) => pick(ofKind(kind)),
    ticket: (kind) => pick(known.tickets.filter((ticket) => isTicket(ticket, kind)))?.uuid,
    queue: (kind) =>
      kind === 'new' ? { ...(queues[0] as Place), id: `rare ${Math.floor(fraction() * 20)}` } : pick(queues),
    vm: () => undefined,
    claimed: () => undefined,
    duties: (kind) =>
      shuffled(
        known.duties.filter(({ kindOf }) => kindOf === kind),
        fraction,
      ).slice(0, 5),
    pushJob: () => undefined,
    workflowJob: () => undefined,
    graph: undefined,
    schedule: () => undefined,
    inOrder: (items) => [...items],
    uuid: () => randomUUID(),
  };
}

/** Sometimes a ticket that has ended: a late client asks for it as well. */
function isTicket({ status, isDue }: Knowledge['tickets'][number], kind: TicketKind): boolean {
  return kind === 'due' ? isDue : kind === 'next' ? status === 'queued' : status !== 'queued';
}

function shuffled<Item>(items: readonly Item[], fraction: () => number): Item[] {
  return items
    .map((item) => ({ item, rank: fraction() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}
