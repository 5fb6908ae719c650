/**
 * Two calls at once, in a known order: the first is stopped somewhere, seen to stand there, the
 * second is run until it has ended or stands at a lock itself, then the first is let go. Nothing is
 * timed: who waits is read from pg_stat_activity.
 *
 *     points to stop the first leg at
 *       clock     where it asks for the time: after its locks, before it writes
 *       commit    it has written and has not committed
 *       (a row)   a row it needs, which a third session holds, or is about to insert and gives up
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../../lib/platform/errors.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { complaintsSince } from './invariants.ts';
import { CLOCK_LOCK } from './lab-schema.ts';
import type { Lane, Leg } from './lane.ts';
import type { Call, Prepared, World } from './statement.ts';
import type { WorldName } from './worlds.ts';

export interface Interleaving {
  world: WorldName;
  point: string;
  first: Call;
  second: Call;
}

/** The result of one interleaving. */
export interface Meeting {
  complaints: readonly string[];
  /** The first leg was seen to stop at its point; for `commit`, it got there. */
  firstStood: boolean;
  /** The second leg had to wait for the first, or for the same row. */
  secondStood: boolean;
}

export interface Violation extends Interleaving {
  complaints: readonly string[];
}

/** Not concurrent, but one after the other: a violation then is not a matter of interleavings. */
export const IN_TURN = 'its end';
const AT_COMMIT = 'commit';
const CLOCK_HOLD = `select pg_advisory_xact_lock(${CLOCK_LOCK})`;
/** Ends a transaction that is to be rolled back. */
const undone = new Error('undone');

export async function interleave(lane: Lane, { world, point, first, second }: Interleaving): Promise<Meeting> {
  const one = first.prepare(worldOf(lane, world));
  const two = second.prepare(worldOf(lane, world, true));
  if (one === undefined || two === undefined)
    throw new Error(`${world}: ${first.name} or ${second.name} cannot be called`);
  await lane.reset(world, [...one.intents, ...two.intents]);
  const { outcomes, ...stood } = await together(lane, holdSql(lane, world, point), [one, two]);
  if (world === 'broken') await lane.admin.query('select cnapi_repair_queues(100)');
  const errors = outcomes.flatMap((outcome) => outcome.errors);
  const exclusive = twice(outcomes.flatMap((outcome) => outcome.exclusive));
  return {
    complaints: [...errors, ...exclusive, ...(await complaintsSince(lane.admin, lane.begunAt(world)))],
    ...stood,
  };
}

type Together = Omit<Meeting, 'complaints'> & { outcomes: readonly Outcome[] };

interface Outcome {
  exclusive: string[];
  errors: string[];
}

/** A run of one leg: its end, and whether that has happened. */
class Running {
  readonly outcome: Promise<Outcome>;
  isOver = false;

  constructor(leg: Leg, { run }: Prepared, queryable: Queryable = leg) {
    this.outcome = run(queryable)
      .then(
        (exclusive): Outcome => ({ exclusive, errors: [] }),
        (error: unknown): Outcome => ({ exclusive: [], errors: [`${leg.name} failed: ${messageOf(error)}`] }),
      )
      .finally(() => {
        this.isOver = true;
      });
  }

  /** Waits until the leg has ended or waits for a lock; true if it waits. */
  async stands(lane: Lane, leg: Leg): Promise<boolean> {
    while (!this.isOver) {
      if (await lane.isWaiting(leg)) return true;
      // Polling without pauses would take time from the legs.
      await sleep(1);
    }
    return false;
  }
}

function together(lane: Lane, hold: string, [one, two]: [Prepared, Prepared]): Promise<Together> {
  if (hold === IN_TURN) return inTurn(lane, one, two);
  return hold === AT_COMMIT ? aroundCommit(lane, one, two) : behindHold(lane, hold, one, two);
}

async function inTurn(lane: Lane, one: Prepared, two: Prepared): Promise<Together> {
  const outcomes = [await new Running(lane.one, one).outcome, await new Running(lane.two, two).outcome];
  return { outcomes, firstStood: false, secondStood: false };
}

async function behindHold(lane: Lane, hold: string, one: Prepared, two: Prepared): Promise<Together> {
  await lane.holder.query(`begin; ${hold}`);
  const first = new Running(lane.one, one);
  const firstStood = await first.stands(lane, lane.one);
  const second = new Running(lane.two, two);
  const secondStood = await second.stands(lane, lane.two);
  await lane.holder.query('rollback');
  return { outcomes: await Promise.all([first.outcome, second.outcome]), firstStood, secondStood };
}

/** A first leg that fails cannot commit; the second one still runs. */
async function aroundCommit(lane: Lane, one: Prepared, two: Prepared): Promise<Together> {
  const second: { running?: Running; stood?: boolean } = {};
  const own = await lane.one
    .transaction(async (connection) => {
      const outcome = await new Running(lane.one, one, connection).outcome;
      second.running = new Running(lane.two, two);
      second.stood = await second.running.stands(lane, lane.two);
      if (outcome.errors.length > 0) throw new Error(outcome.errors.join());
      return outcome;
    })
    .catch((error: unknown): Outcome => ({ exclusive: [], errors: [messageOf(error)] }));
  const other = (await second.running?.outcome) ?? { exclusive: [], errors: [] };
  return { outcomes: [own, other], firstStood: true, secondStood: second.stood ?? false };
}

/** What a call does alone in a world, and where a first leg can be stopped in it. */
export interface Footprint {
  stops: string[];
  /** Tables of the product, by what the statement does with them. */
  reads: Set<string>;
  locks: Set<string>;
  writes: Set<string>;
  /** True if it changed a row. */
  hasEffect: boolean;
}

export async function survey(lane: Lane, name: WorldName, call: Call): Promise<Footprint | undefined> {
  const world = worldOf(lane, name);
  const prepared = call.prepare(world);
  if (prepared === undefined) return undefined;
  await lane.reset(name, prepared.intents);
  const footprint = await look(lane, prepared);
  for (const table of call.hints) footprint.reads.delete(table);
  const held = Object.entries(stillWorld(lane, name).holds).filter(([, sql]) => isOf(footprint, sql));
  for (const point of ['clock', ...held.map(([point]) => point)])
    if (await stopsAt(lane, name, point, prepared)) footprint.stops.push(point);
  footprint.stops.push(AT_COMMIT);
  return footprint;
}

/** Whether a hold is on a table where the call locks or writes anything. */
function isOf({ locks, writes }: Footprint, sql: string): boolean {
  const table = /cnapi_\w+/.exec(sql)?.[0] ?? '';
  return locks.has(table) || writes.has(table);
}

async function look(lane: Lane, { run }: Prepared): Promise<Footprint> {
  const found: Footprint = { stops: [], reads: new Set(), locks: new Set(), writes: new Set(), hasEffect: false };
  const sets: Record<string, Set<string>> = {
    AccessShareLock: found.reads,
    RowShareLock: found.locks,
    RowExclusiveLock: found.writes,
  };
  await undo(lane, async (connection) => {
    const before = await countChanges(connection);
    await run(connection);
    found.hasEffect = (await countChanges(connection)) > before;
    const { rows } = await connection.query<{ relation: string; mode: string }>(
      `select c.relname as relation, l.mode from pg_locks l join pg_class c on c.oid = l.relation
       join pg_namespace n on n.oid = c.relnamespace
       where l.pid = pg_backend_pid() and c.relkind = 'r' and n.nspname = 'public' and c.relname like 'cnapi%'`,
    );
    for (const { relation, mode } of rows) sets[mode]?.add(relation);
  });
  return found;
}

async function countChanges(connection: Queryable): Promise<number> {
  const { rows } = await connection.query<{ changes: number }>(
    `select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint as changes from pg_stat_xact_user_tables
     where schemaname = 'public'`,
  );
  return rows[0]?.changes ?? 0;
}

async function stopsAt(lane: Lane, name: WorldName, point: string, prepared: Prepared): Promise<boolean> {
  await lane.holder.query(`begin; ${holdSql(lane, name, point)}`);
  let isStopped = false;
  await undo(lane, async (connection) => {
    const running = new Running(lane.one, prepared, connection);
    isStopped = await running.stands(lane, lane.one);
    await lane.holder.query('rollback');
    await running.outcome;
  });
  return isStopped;
}

async function undo(lane: Lane, work: (connection: Queryable) => Promise<void>): Promise<void> {
  await lane.one
    .transaction(async (connection) => {
      await work(connection);
      throw undone;
    })
    .catch((error: unknown) => {
      if (error !== undone) throw error;
    });
}

/** The statement that takes the lock. The two points that need none stand for themselves. */
function holdSql(lane: Lane, name: WorldName, point: string): string {
  if (point === AT_COMMIT || point === IN_TURN) return point;
  const hold = point === 'clock' ? CLOCK_HOLD : stillWorld(lane, name).holds[point];
  if (hold === undefined) throw new Error(`${name}: no row to lock has the name ${point}`);
  return hold;
}

function stillWorld(lane: Lane, name: WorldName) {
  const world = lane.worlds.get(name);
  if (world === undefined) throw new Error(`there is no world ${name}`);
  return world;
}

/** The world as one of the two legs sees it. */
export function worldOf(lane: Lane, name: WorldName, isReversed = false): World {
  return {
    ...stillWorld(lane, name),
    inOrder: (items) => (isReversed ? items.toReversed() : [...items]),
    uuid: () => randomUUID(),
  };
}

/** Results that were given to both callers although only one may have them. */
function twice(exclusive: readonly string[]): string[] {
  return exclusive.filter((one, n) => exclusive.indexOf(one) < n).map((one) => `two callers received ${one}`);
}
