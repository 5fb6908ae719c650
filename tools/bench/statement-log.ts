/**
 * Counts the statements that instances send. Our own Postgres logs them for a limited time, and the
 * lines are counted. A given Postgres is asked for its transaction count instead, the nearest value
 * available without changing its settings; the counter's own transactions are few.
 */
import { readFileSync } from 'node:fs';
import { systemClock as clock } from '../../lib/platform/clock.ts';
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
const LINE = /^bench cnapi[^:]*: LOG: {2}(?:execute [^:]*|statement): (.*)$/;

export async function countStatements(foundation: Foundation, zone: Zone, windowMs: number): Promise<StatementCount> {
  const { postgresLog } = foundation;
  return postgresLog === undefined ? countTransactions(zone, windowMs) : countLogged(foundation, postgresLog, windowMs);
}

async function countLogged(foundation: Foundation, file: string, windowMs: number): Promise<StatementCount> {
  await setLogging(foundation, `log_statement = 'all'`, `log_line_prefix = 'bench %a: '`);
  try {
    await clock.sleep(LOG_LAG_MS);
    const before = readFileSync(file).length;
    await clock.sleep(windowMs);
    const lines = readFileSync(file).subarray(before).toString().split('\n');
    return summarized(
      lines.flatMap((line) => LINE.exec(line)?.[1] ?? []),
      windowMs,
    );
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
