/** SQL of duties: create, claim, compare, settle, delete. Fenced by (id, run, generation). */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { DutyBacklog, DutySettlement, HeldDuty } from './duty.ts';

interface DutyLoad extends Omit<DutyBacklog, 'overdue'> {
  /** Duties that nobody carries out. */
  free: number;
  /** Id and generation of some of them: those that are claimed first. */
  nextFree: string[];
  /** Time until the next pause after a failure ends; null if there is no pause. */
  resumesInMs: number | null;
}

const MAX_NEXT_FREE = 1_000;

/**
 * What there is to do for all instances. What a live run holds is counted, and nothing else is
 * asked about it: every instance reads this at each slow poll.
 */
export async function readDutyLoad(database: Queryable, kinds: readonly string[]): Promise<DutyLoad> {
  const { rows } = await database.query<DutyLoad>(
    `with now as materialized (select cnapi_now() as moment, cnapi_ended_holders() as ended)
     select count(*)::int as unfinished, count(*) filter (where is_free)::int as free,
         coalesce((array_agg(id || ' ' || generation order by claimable_at, id) filter (where is_free))[1:$2::int], '{}') as "nextFree",
         ceil(1000 * extract(epoch from min(claimable_at) filter (where state = 'waiting' and not is_free) - (select moment from now)))::int
           as "resumesInMs",
         (select count(*)::int from cnapi_instances where state = 'live' and draining_since is null) as instances
       from (
         select d.id, d.state, d.generation, d.claimable_at,
             case when d.state = 'waiting' then cnapi_is_due_duty(d, now.moment)
               else d.run = any (now.ended) and cnapi_is_free_duty(d, now.moment) end as is_free
           from cnapi_duties d, now where d.state <> 'ended' and d.kind = any ($1::text[])
       ) as unfinished`,
    [kinds, MAX_NEXT_FREE],
  );
  return rows[0] as DutyLoad;
}

export interface ClaimedDuty extends HeldDuty {
  /** Whether its former holder is dead. */
  wasTakenOver: boolean;
  /** How often in a row its holder lapsed soon after it had claimed it. */
  takeovers: number;
}

interface DutyRow {
  id: string;
  kind: string;
  generation: number;
  failures: number;
}

/** Claims free duties for this run, if it is live. */
export async function claimDuties(
  database: Queryable,
  run: string,
  { kinds, limit }: { kinds: readonly string[]; limit: number },
): Promise<ClaimedDuty[]> {
  const { rows } = await database.query<DutyRow & { was_held: boolean; takeovers: number }>(
    'select id, kind, generation, failures, was_held, takeovers from cnapi_claim_duties($1::uuid, $2::text[], $3::int)',
    [run, kinds, limit],
  );
  return rows.map(({ was_held, ...row }) => ({ ...row, run, wasTakenOver: was_held }));
}

/** The duties that this run holds according to their rows. */
export async function readHeldDuties(database: Queryable, run: string): Promise<HeldDuty[]> {
  const { rows } = await database.query<DutyRow>(
    `select id, kind, generation, failures from cnapi_duties where run = $1::uuid and state = 'held'`,
    [run],
  );
  return rows.map((row) => ({ ...row, run }));
}

/** What becomes of a duty that its holder no longer carries out. */
export interface SettlementRow {
  id: string;
  generation: number;
  settlement: DutySettlement;
  /** How long a duty that is handed over waits before it is free; 0 unless its work has failed. */
  pauseMs: number;
}

export interface SettledDuties {
  settled: Set<string>;
  /** Duties whose rows are locked: settle them again after a short pause. */
  locked: Set<string>;
}

/**
 * Ends duties of this run, or hands them over. Duties in neither set of the answer have another
 * holder, or have ended.
 */
export async function settleDuties(
  database: Queryable,
  run: string,
  settlements: readonly SettlementRow[],
): Promise<SettledDuties> {
  const { rows } = await database.query<{ id: string; settled: boolean }>(
    `with wanted as (
       select * from unnest($2::uuid[], $3::int[], $4::bool[], $5::int[]) as wanted (id, generation, is_end, pause_ms)
     ), unlocked as (
       select d.id from cnapi_duties d join wanted using (id)
         where d.state = 'held' and d.run = $1::uuid and d.generation = wanted.generation
         order by d.id for update of d skip locked
     ), settled as (
       update cnapi_duties d
         set state = case when wanted.is_end then 'ended' else 'waiting' end, run = null,
           ended_at = case when wanted.is_end then cnapi_now() end,
           failures = d.failures + case when wanted.pause_ms > 0 then 1 else 0 end,
           waiting_since = cnapi_now(), claimable_at = cnapi_now() + wanted.pause_ms * interval '1 ms'
         from wanted
         where d.id = wanted.id and d.id in (select id from unlocked)
           and d.state = 'held' and d.run = $1::uuid and d.generation = wanted.generation
         returning d.id
     )
     select d.id, d.id in (select id from settled) as settled from cnapi_duties d join wanted using (id)
       where d.state = 'held' and d.run = $1::uuid and d.generation = wanted.generation`,
    [
      run,
      settlements.map(({ id }) => id),
      settlements.map(({ generation }) => generation),
      settlements.map(({ settlement }) => settlement.kind === 'end'),
      settlements.map(({ pauseMs }) => pauseMs),
    ],
  );
  const { settled = [], locked = [] } = Object.groupBy(rows, (row) => (row.settled ? 'settled' : 'locked'));
  return { settled: new Set(settled.map(({ id }) => id)), locked: new Set(locked.map(({ id }) => id)) };
}

/** Deletes some duties that ended more than `days` ago; returns how many. */
export async function deleteEndedDuties(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_duties where state = 'ended' and id = any (array(
       select id from cnapi_duties where state = 'ended' and ended_at < cnapi_now() - $1::int * interval '1 day'
         order by ended_at limit $2::int for update skip locked))`,
    [days, limit],
  );
  return rowCount;
}
