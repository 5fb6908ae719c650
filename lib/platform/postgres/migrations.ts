/**
 * Brings the database's schema up to date: numbered steps, forward only and additive, each in one
 * transaction with its record in `cnapi_migrations`. Called at start, by several instances at once:
 * one works, the others wait for its lock. A database with more steps than this code knows is left
 * unchanged, so a version can be rolled back.
 */
import { createHash } from 'node:crypto';
import { CnapiError, DatabaseBusyError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { type Database, type Queryable, sqlStateOf } from './database.ts';

/**
 * Numbers are unique over all nouns and only rise: a new step takes the next free one. Up to 119
 * each noun had tens of its own. The order is checked within each ten, because nouns are listed one
 * after the other.
 */
export interface Migration {
  number: number;
  name: string;
  /** One or several statements; must run alike on Postgres 15, 18 and PGlite. */
  sql: string;
}

export class MigrationError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('MigrationError', 500, message, { cause });
  }
}

const LOCK_NOT_AVAILABLE = '55P03';
const lockKey = 0x63_6e_61_70; // "cnap"
const statementTimeoutMs = 10 * 60_000;

/** A null digest is from the time before there were digests; such a step is not compared. */
const ensureTable = `
  create table if not exists cnapi_migrations (
    number int primary key,
    name text not null,
    applied_at timestamptz not null default clock_timestamp()
  );
  do $$ begin
    if not exists (select 1 from pg_attribute where attrelid = 'cnapi_migrations'::regclass and attname = 'digest') then
      alter table cnapi_migrations add column digest text;
    end if;
  end $$`;

/**
 * Everybody who uses a table waits behind a change that waits for the table's lock, and a dump
 * keeps all tables locked until it ends. A step therefore gives up soon and is retried later: each
 * try causes an outage of at most this length.
 */
const stepLockTimeoutMs = 100;

interface Applied {
  number: number;
  name: string;
  digest: string | null;
}

/**
 * Applies missing steps in order of number.
 * @throws MigrationError when the list contradicts itself or the database's record, or when a step
 * fails (it is undone, those before it stay); DatabaseBusyError when another client keeps a table
 * locked that a step changes
 */
export async function migrate(
  database: Database,
  migrations: readonly Migration[],
  { log }: { log: Logger },
): Promise<void> {
  const ordered = inOrder(migrations);
  const before = await oneAtATime(database, async (connection) => {
    await connection.query(ensureTable);
    const applied = await appliedSteps(connection);
    refuseChanges(ordered, applied);
    return applied;
  });
  for (const migration of ordered.filter(({ number }) => !before.has(number))) {
    const isNew = await oneAtATime(database, (connection) => apply(connection, migration));
    if (isNew) log.info({ number: migration.number, migration: migration.name }, 'migration applied');
  }
}

function inOrder(migrations: readonly Migration[]): Migration[] {
  const ordered = [...migrations].sort((a, b) => a.number - b.number);
  for (const [index, migration] of ordered.entries()) {
    const { number, name } = migration;
    if (!Number.isInteger(number) || number < 1)
      throw new MigrationError(`migration ${number} '${name}': not a number above 0`);
    const next = ordered[index + 1];
    if (next?.number === number)
      throw new MigrationError(`migrations '${name}' and '${next.name}' both have number ${number}`);
  }
  return ordered;
}

/**
 * Within its ten, a new step must come after the applied ones. An applied step must not change or
 * disappear.
 */
function refuseChanges(migrations: readonly Migration[], applied: Map<number, Applied>): void {
  const known = new Map(migrations.map((migration) => [migration.number, migration]));
  for (const { number, name } of migrations) {
    const later = [...applied.keys()].find((one) => tenOf(one) === tenOf(number) && one > number);
    if (!applied.has(number) && later !== undefined) {
      throw new MigrationError(
        `migration ${number} '${name}' was never applied, but ${later} was; give it a number after that`,
      );
    }
  }
  for (const { number, name } of applied.values()) {
    const later = migrations.find((one) => tenOf(one.number) === tenOf(number) && one.number > number);
    if (!known.has(number) && later !== undefined) {
      throw new MigrationError(
        `the database has migration ${number} '${name}', which this version lacks although it has ${later.number}`,
      );
    }
  }
  for (const migration of migrations) {
    const recorded = applied.get(migration.number);
    if (recorded !== undefined) refuseChange(migration, recorded);
  }
}

function refuseChange(migration: Migration, recorded: Applied): void {
  const { number, name } = migration;
  const isSameName = recorded.name === name;
  if (isSameName && (recorded.digest === null || recorded.digest === digestOf(migration))) return;
  const given = isSameName ? 'another text' : `'${recorded.name}'`;
  throw new MigrationError(
    `migration ${number} is '${name}' in this version, but the database was given ${given} under that number; ` +
      'applied steps never change: use the version that made this database, or another database (a developer: add a new number)',
  );
}

/** Digest of the text; white space does not count. */
function digestOf({ sql }: Migration): string {
  return createHash('sha256').update(sql.replace(/\s+/g, ' ').trim()).digest('hex');
}

const tenOf = (number: number): number => Math.floor(number / 10);

async function appliedSteps(connection: Queryable): Promise<Map<number, Applied>> {
  const { rows } = await connection.query<Applied>('select number, name, digest from cnapi_migrations');
  return new Map(rows.map((row) => [row.number, row]));
}

async function apply(connection: Queryable, migration: Migration): Promise<boolean> {
  const { number, name, sql } = migration;
  const applied = await appliedSteps(connection);
  if (applied.has(number)) return false;
  try {
    await connection.query(`set local lock_timeout = ${stepLockTimeoutMs}`);
    await connection.query(sql);
  } catch (error) {
    if (sqlStateOf(error) === LOCK_NOT_AVAILABLE) throw new DatabaseBusyError('locked', error);
    if (sqlStateOf(error) === undefined) throw error;
    throw new MigrationError(`migration ${number} '${name}' failed and was undone: ${(error as Error).message}`, error);
  }
  await connection.query('insert into cnapi_migrations (number, name, digest) values ($1::int, $2::text, $3::text)', [
    number,
    name,
    digestOf(migration),
  ]);
  return true;
}

/** Runs `work` in a transaction; only one such transaction runs at a time among all instances. */
export function oneAtATime<Result>(
  database: Database,
  work: (connection: Queryable) => Promise<Result>,
): Promise<Result> {
  return database.transaction(
    async (connection) => {
      await connection.query('select pg_advisory_xact_lock($1::bigint)', [lockKey]);
      return work(connection);
    },
    { statementTimeoutMs },
  );
}
