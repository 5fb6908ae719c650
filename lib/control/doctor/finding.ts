/**
 * What a check of `cnapi doctor` receives, and its result: a level, what was found, and what to do
 * about it.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Migration } from '../../platform/postgres/migrations.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Config } from '../config.ts';

/** What checks read. A check changes nothing. */
export interface CheckInput {
  config: Config;
  /** The database, which may be unreachable, empty or of another version. */
  database: Queryable;
  /** Migrations of this version. */
  migrations: readonly Migration[];
  /** A name server to ask instead of the system's. */
  dns: string | undefined;
  clock: Clock;
  random: Random;
}

/** A check that rejects or takes too long becomes a finding. */
export type Check = (examined: CheckInput) => Promise<Finding[]>;

export type Severity = 'ok' | 'warn' | 'fail';

export interface Finding {
  /** The part that was checked: config, database, bus, … */
  part: string;
  level: Severity;
  found: string;
  /** Present when the user should do something. */
  todo?: string;
}

/** Creates the findings of one part. */
export interface Findings {
  ok(found: string): Finding;
  warn(found: string, todo: string): Finding;
  fail(found: string, todo: string): Finding;
}

export function findings(part: string): Findings {
  return {
    ok: (found) => ({ part, level: 'ok', found }),
    warn: (found, todo) => ({ part, level: 'warn', found, todo }),
    fail: (found, todo) => ({ part, level: 'fail', found, todo }),
  };
}
