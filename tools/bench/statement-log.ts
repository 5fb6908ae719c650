/**
 * Counts the statements that instances send. Our own Postgres logs them for a limited time, and the
 * lines are counted. A given Postgres is asked for its transaction count instead, the nearest value
 * available without changing its settings; the counter's own transactions are few.
 */
import { readFileSync } from 'node:fs';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import type { Foundation } from './foundation.ts';
import type { Zone } from './zone.ts';

export interface StatementCount {
  perSecond: number;
  /** The most frequent statements with their rates; empty if only transactions can be counted. */
  top: { text: string; perSecond: number }[];
}

const TOP = 3;
const TEXT_CHARS = 60;
/** The log may be written with a small delay. */
const LOG_LAG_MS = 500;
/** Sessions update the statistics at most once per second. */
const STATISTICS_LAG_MS = 1_500;
const LINE = /^bench cnapi[^:]*: LOG: {2}(?:execute [^:]*|statement): (.*)$/s;

export async function countStatements(foundation: Foundation, zone: Zone, windowMs: number): Promise<StatementCount> {
  const { postgresLog } = foundation;
  return postgresLog === undefined ? countTransactions(zone, windowMs) : countLogged(foundation, postgresLog, windowMs);
}

/**
 * Returns the texts of the statements that instances sent during `work`, which all this logging
 * slows down; undefined when the Postgres is a given one, because its settings are left alone.
 */
export async function logStatements(
  foundation: Foundation,
  work: () => Promise<unknown>,
): Promise<string[] | undefined> {
  const { postgresLog } = foundation;
  if (postgresLog === undefined) return undefined;
  return logged(foundation, postgresLog, work);
}

async function countLogged(foundation: Foundation, file: string, windowMs: number): Promise<StatementCount> {
  return summarized(await logged(foundation, file, () => clock.sleep(windowMs)), windowMs);
}

async function logged(foundation: Foundation, file: string, work: () => Promise<unknown>): Promise<string[]> {
  const what = [`log_statement = 'all'`, `log_line_prefix = 'bench %a: '`, 'log_parameter_max_length = 0'];
  await setLogging(foundation, ...what);
  try {
    await clock.sleep(LOG_LAG_MS);
    const before = readFileSync(file).length;
    await work();
    await clock.sleep(LOG_LAG_MS);
    const lines = readFileSync(file).subarray(before).toString().split('\nbench ');
    return lines.flatMap((line) => LINE.exec(`bench ${line}`)?.[1] ?? []);
  } finally {
    await foundation.sql('alter system reset all');
    await foundation.sql('select pg_reload_conf()');
  }
}

async function setLogging(foundation: Foundation, ...settings: string[]): Promise<void> {
  for (const setting of settings) await foundation.sql(`alter system set ${setting}`);
  await foundation.sql('select pg_reload_conf()');
}

function summarized(texts: readonly string[], windowMs: number): StatementCount {
  const counts = new Map<string, number>();
  for (const text of texts) {
    const head = text.trim().slice(0, TEXT_CHARS);
    counts.set(head, (counts.get(head) ?? 0) + 1);
  }
  const perSecond = (count: number) => (count * 1000) / windowMs;
  const top = [...counts].sort(([, a], [, b]) => b - a).slice(0, TOP);
  return {
    perSecond: perSecond(texts.length),
    top: top.map(([text, count]) => ({ text, perSecond: perSecond(count) })),
  };
}

async function countTransactions(zone: Zone, windowMs: number): Promise<StatementCount> {
  const look = async () => {
    const [row] = await zone.sql<{ count: string }>(
      'select xact_commit + xact_rollback as count from pg_stat_database where datname = current_database()',
    );
    return Number(row?.count);
  };
  await clock.sleep(STATISTICS_LAG_MS);
  const before = await look();
  await clock.sleep(windowMs);
  return { perSecond: ((await look()) - before) / (windowMs / 1000), top: [] };
}
