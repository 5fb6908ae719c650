/**
 * The statements over cnapi_instances: one row per run, its beat, and its death by compare-and-set
 * on (run, beat).
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import { ADMISSIONS, type Admission } from '../../../protocol/api/instances.ts';
import { MAX_RETURN_MS } from '../../../protocol/limits.ts';
import type { BeatReading } from './lease.ts';

export interface InstanceIdentity {
  cnapiUuid: string;
  /** The URL at which callers reach it, e.g. http://127.0.0.1:8080 */
  url: string;
  host: string;
  port: number;
  pid: number;
  version: string;
}

export interface InstanceRow extends InstanceIdentity {
  run: string;
  state: 'live' | 'dead';
  /** Whether the instance is about to leave and accepts no more agents. */
  isDraining: boolean;
  beat: number;
  agents: number;
  /**
   * Whether new agents are admitted; undefined for an instance of a version that does not report
   * it.
   */
  admission: Admission | undefined;
  startedAt: Date;
}

/**
 * Returns when the instance was started. Repeating with the same run is harmless: the answer to the
 * first call may have been lost. Undefined: the run has been declared dead since then, and needs
 * another id.
 */
export async function insertRun(
  database: Queryable,
  run: string,
  identity: InstanceIdentity,
  startedAt: Date | null,
): Promise<Date | undefined> {
  const { rows } = await database.query<{ started_at: Date }>(
    `insert into cnapi_instances (run, cnapi_uuid, url, host, port, pid, version, started_at)
     values ($1::uuid, $2::uuid, $3::text, $4::text, $5::int, $6::int, $7::text, coalesce($8::timestamptz, cnapi_now()))
     on conflict (run) do update set pid = excluded.pid where cnapi_instances.state = 'live'
     returning started_at`,
    [run, identity.cnapiUuid, identity.url, identity.host, identity.port, identity.pid, identity.version, startedAt],
  );
  return rows[0]?.started_at;
}

/** SQL that sets it; the parameter is `latestReturnInMs`, or null. */
const setLatestReturn = (parameter: string): string =>
  `latest_return_at = coalesce(cnapi_now() + ${parameter}::double precision * interval '1 ms', latest_return_at)`;

/** What the run's row says; undefined when the run was declared dead, which is final. */
export type BeatResult = { isDraining: boolean } | undefined;

/** What an instance records about itself with each beat. */
interface BeatReport {
  agents: number;
  admission?: Admission;
  /** See `Arrivals.latestReturnInMs`. */
  latestReturnInMs?: number | undefined;
}

export async function incrementBeat(
  database: Queryable,
  run: string,
  { agents, admission = 'open', latestReturnInMs }: BeatReport,
): Promise<BeatResult> {
  const { rows } = await database.query<{ is_draining: boolean }>(
    `update cnapi_instances set beat = beat + 1, agents = $2::int, admission = $3::text, ${setLatestReturn('$4')}
     where run = $1::uuid and state = 'live'
     returning draining_since is not null as is_draining`,
    [run, agents, admission, latestReturnInMs ?? null],
  );
  return rows[0] && { isDraining: rows[0].is_draining };
}

/** `last`: no other instance would stay. `gone`: the run is dead. */
export type DrainResult = 'draining' | 'last' | 'gone';

/** Marks a run as about to leave; repeating is harmless. */
export async function drainRun(database: Queryable, run: string): Promise<DrainResult> {
  const { rows } = await database.query<{ answer: DrainResult }>('select cnapi_drain($1::uuid) as answer', [run]);
  return (rows[0] as { answer: DrainResult }).answer;
}

/** False for a run that was declared dead, has ended or was deleted; it never comes back. */
export async function isLive(database: Queryable, run: string): Promise<boolean> {
  const { rows } = await database.query(`select 1 from cnapi_instances where run = $1::uuid and state = 'live'`, [run]);
  return rows.length > 0;
}

/** Whether a run, dead or alive, was asked to drain. */
export async function wasAskedToDrain(database: Queryable, run: string): Promise<boolean> {
  const { rows } = await database.query(
    'select 1 from cnapi_instances where run = $1::uuid and draining_since is not null',
    [run],
  );
  return rows.length > 0;
}

export async function readLive(database: Queryable): Promise<InstanceRow[]> {
  const { rows } = await database.query<StoredInstance>(
    `select run, cnapi_uuid, url, host, port, pid, version, state, beat, agents, admission, started_at,
       draining_since is not null as is_draining
     from cnapi_instances where state = 'live' order by started_at, run`,
  );
  return rows.map(toInstanceRow);
}

/**
 * Declares runs dead whose beat still has the value that was seen standing still. Returns those
 * that it declared dead. A locked row is left for the next beat: its run may be about to raise its
 * beat.
 */
export async function declareLapsed(database: Queryable, lapsed: readonly BeatReading[]): Promise<string[]> {
  const { rows } = await database.query<{ run: string }>(
    `with lapsed as (
       select * from unnest($1::uuid[], $2::bigint[]) as lapsed (run, beat)
     ), locked as (
       select instance.run from cnapi_instances instance join lapsed using (run)
       where instance.beat = lapsed.beat and instance.state = 'live'
       order by instance.run for update of instance skip locked
     )
     update cnapi_instances instance set state = 'dead', ended_at = cnapi_now(), end_reason = 'lapsed'
     from lapsed where instance.run = lapsed.run and instance.run in (select run from locked)
       and instance.beat = lapsed.beat and instance.state = 'live'
     returning instance.run`,
    [lapsed.map(({ run }) => run), lapsed.map(({ beat }) => beat)],
  );
  return rows.map(({ run }) => run);
}

/**
 * A run ends itself; its rows are ownerless from now on. `latestReturnInMs`: as with a beat; agents
 * were deferred since the last one.
 */
export async function endRun(database: Queryable, run: string, latestReturnInMs?: number): Promise<void> {
  await database.query(
    `update cnapi_instances set state = 'dead', ended_at = cnapi_now(), end_reason = 'stopped', ${setLatestReturn('$2')}
     where run = $1::uuid and state = 'live'`,
    [run, latestReturnInMs ?? null],
  );
}

/** What the rows of dead runs wait for. */
export interface AwaitedReturns {
  /** The runs whose rows wait. */
  runs: ReadonlySet<string>;
  /** The latest time at which an instance, live or dead, told an agent to return. */
  latestReturnAt: Date;
  /** Milliseconds until the first run stops waiting, unless an agent gets a later time. */
  firstOverInMs: number;
}

/**
 * Which of these dead runs have agents that may still return because an instance told them when to
 * do so: until `graceMs` after the latest of these times. A run waits for MAX_RETURN_MS + `graceMs`
 * at most. That counts from the run's end, or from the start of the observer, whose run is
 * `observer`, if that was later: no agent could return before. Undefined: none waits. A time that
 * is further ahead than possible was recorded before the database's clock was set back, and is
 * ignored.
 */
export async function readAwaitedReturns(
  database: Queryable,
  observer: string,
  runs: readonly string[],
  graceMs: number,
): Promise<AwaitedReturns | undefined> {
  const { rows } = await database.query<{ run: string; latest_return_at: Date; over_in_ms: number }>(
    `with latest as (
       select max(latest_return_at) as return_at from cnapi_instances
       where latest_return_at between cnapi_now() - $3::int * interval '1 ms' and cnapi_now() + $4::int * interval '1 ms'
     ), ended as (
       select run, greatest(ended_at, (select started_at from cnapi_instances where run = $1::uuid)) as since
       from cnapi_instances where run = any ($2::uuid[]) and ended_at is not null
     )
     select run, latest.return_at as latest_return_at, ceil(1000 * extract(epoch from
       least(latest.return_at + $3::int * interval '1 ms', since + ($3::int + $4::int) * interval '1 ms') - cnapi_now()))::int
       as over_in_ms
     from ended, latest
     where latest.return_at is not null
       and since between cnapi_now() - ($3::int + $4::int) * interval '1 ms' and cnapi_now()`,
    [observer, runs, graceMs, MAX_RETURN_MS],
  );
  const [first] = rows;
  return (
    first && {
      runs: new Set(rows.map(({ run }) => run)),
      latestReturnAt: first.latest_return_at,
      firstOverInMs: Math.min(...rows.map((row) => row.over_in_ms)),
    }
  );
}

/**
 * Deletes runs that ended over a day ago and that no `running` row names. Their `latest_return_at`
 * is over by then: it is at most MAX_RETURN_MS after their end.
 */
export async function deleteEndedRuns(database: Queryable): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_instances where run = any (array(
       select run from cnapi_instances instance
       where ended_at < cnapi_now() - interval '1 day'
         and not exists (
           select 1 from cnapi_roster_authority row where row.run = instance.run and row.status = 'running')
       for update skip locked))`,
  );
  return rowCount;
}

interface StoredInstance {
  run: string;
  cnapi_uuid: string;
  url: string;
  host: string;
  port: number;
  pid: number;
  version: string;
  state: InstanceRow['state'];
  beat: number;
  agents: number;
  admission: string | null;
  started_at: Date;
  is_draining: boolean;
}

function toInstanceRow({ cnapi_uuid, started_at, is_draining, admission, ...row }: StoredInstance): InstanceRow {
  const known = ADMISSIONS.find((one) => one === admission);
  return { ...row, cnapiUuid: cnapi_uuid, startedAt: started_at, isDraining: is_draining, admission: known };
}
