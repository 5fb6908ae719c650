/**
 * What a dump costs the callers: tasks a second and a task's round trip beside a transaction that
 * keeps a repeatable-read snapshot and ACCESS SHARE on all tables, as `pg_dump` does. No dead row
 * can be removed while it is open. Beside it the same in a second zone of the same Postgres, by
 * turns: a snapshot keeps the dead rows of its own database only.
 */
import pg from 'pg';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { runLanes } from '../lanes.ts';
import { median } from '../statistics.ts';
import { number } from '../table.ts';
import type { Zone } from '../zone.ts';
import { IN_FLIGHT, loadOf, SERVERS } from './task-rate.ts';

export const snapshot: Figure = {
  name: 'snapshot',
  says: 'tasks per second and their round trip during an open snapshot of --snapshot-minutes (1), and without it',
  seconds: 90,
  measure,
};

const RATE_SECONDS = 4;
const TRIPS_SECONDS = 1.5;
/**
 * The part of the turns that counts, from the last one back: an old snapshot is expensive at the
 * end.
 */
const COUNTED_SHARE = 1 / 3;

interface Turn {
  rate: number;
  tripMs: number;
}

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const { isQuick, snapshotMinutes, startZone, signal, say } = context;
  const [held, free] = [await startZone(), await startZone()];
  for (const zone of [held, free]) {
    await zone.addFleet({ agents: SERVERS });
    await zone.untilKnown(SERVERS);
  }
  using caller = new BenchCaller();
  const takeTurn = { held: await turnsOf(held, caller, isQuick), free: await turnsOf(free, caller, isQuick) };
  for (const turn of [takeTurn.held, takeTurn.free]) await turn();
  await using _ = await openSnapshot(held.databaseUrl);
  const openedAt = clock.now();
  const [beside, without]: [Turn[], Turn[]] = [[], []];
  const forMs = isQuick ? 1 : snapshotMinutes * 60_000;
  do {
    signal.throwIfAborted();
    beside.push(await takeTurn.held());
    without.push(await takeTurn.free());
    say(`a snapshot of ${number((clock.now() - openedAt) / 1000)} s: ${noteOf(beside.slice(-1), without.slice(-1))}`);
  } while (clock.now() - openedAt < forMs);
  const age = `${number((clock.now() - openedAt) / 1000)} s`;
  const [{ dead } = { dead: 0 }] = await held.sql<{ dead: number }>(
    `select n_dead_tup::int as dead from pg_stat_user_tables where relname = 'cnapi_tasks'`,
  );
  const last = (turns: readonly Turn[]) => turns.slice(-Math.max(1, Math.round(turns.length * COUNTED_SHARE)));
  const notes = [
    `medians of the last ${last(beside).length} of ${beside.length} turns; ${number(dead)} dead rows of tasks at the end`,
    `in order of time: ${noteOf(beside, without)}`,
  ];
  const of = 'the same without';
  const mid = (turns: readonly Turn[], key: keyof Turn) => median(last(turns).map((turn) => turn[key]));
  return [
    {
      what: `tasks per second, ${IN_FLIGHT} in flight, beside a snapshot of ${age}`,
      value: mid(beside, 'rate'),
      unit: '/s',
      floor: { of, value: mid(without, 'rate') },
      limit: { on: 'ratio', atLeast: 0.8 },
      notes,
    },
    {
      what: `task round trip, one after the other, beside a snapshot of ${age}, p50`,
      value: mid(beside, 'tripMs'),
      unit: 'ms',
      floor: { of, value: mid(without, 'tripMs') },
      limit: { on: 'ratio', atMost: 1.25 },
    },
  ];
}

async function turnsOf(zone: Zone, caller: BenchCaller, isQuick: boolean): Promise<() => Promise<Turn>> {
  const runOne = await loadOf(zone);
  let begun = 0;
  const share = isQuick ? 0.2 : 1;
  return async () => {
    const rate = await runLanes(IN_FLIGHT, RATE_SECONDS * share, () => runOne(caller, begun++));
    const trips: number[] = [];
    await runLanes(1, TRIPS_SECONDS * share, async () => {
      const startedAt = clock.now();
      await runOne(caller, begun++);
      trips.push(clock.now() - startedAt);
    });
    return { rate, tripMs: median(trips) };
  };
}

/** A transaction as a dump's; it ends with its connection. */
async function openSnapshot(databaseUrl: string): Promise<AsyncDisposable> {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: 'bench-snapshot' });
  client.on('error', () => undefined);
  await client.connect();
  await client.query('set idle_in_transaction_session_timeout = 0');
  await client.query('begin isolation level repeatable read read only');
  const { rows } = await client.query<{ name: string }>(
    `select quote_ident(schemaname) || '.' || quote_ident(tablename) as name from pg_tables where schemaname = 'public'`,
  );
  await client.query(`lock table ${rows.map(({ name }) => name).join(', ')} in access share mode`);
  return { [Symbol.asyncDispose]: () => client.end() };
}

function noteOf(beside: readonly Turn[], without: readonly Turn[]): string {
  const ratios = (key: keyof Turn) =>
    beside.map((turn, index) => (turn[key] / (without[index]?.[key] ?? Number.NaN)).toFixed(2)).join(', ');
  return `tasks a second ${ratios('rate')} of those without; round trips ${ratios('tripMs')}`;
}
