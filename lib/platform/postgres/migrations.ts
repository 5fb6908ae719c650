/**
 * Brings the database's schema up to date: steps of SQL, forward only and additive, each in one
 * transaction with its record in `cnapi_migrations`. Called at start, by several instances
 * concurrently: one works, the others wait for its lock. A database with more steps than this code
 * knows is left unchanged, so a version can be rolled back.
 *
 * The steps of a subsystem are the numbered files in its folder `migrations`
 * (`migration-files.ts`). A later version adds files: a function that changes is a new file with
 * its whole new text.
 */
import { createHash } from 'node:crypto';
import { CnapiError, DatabaseBusyError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { type Database, type Queryable, sqlStateOf } from './database.ts';

export interface Migration {
  /** The part of the product that owns what the step creates. It numbers its steps itself. */
  subsystem: string;
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

/**
 * The database was created before the steps of today were written as one baseline. No version was
 * released before that.
 */
export class FormerSchemaError extends CnapiError {
  constructor() {
    super('FormerSchema', 500, `the database has ${FORMER_SCHEMA.what}; ${FORMER_SCHEMA.remedy}`);
  }
}

/** What messages say about the tables of a development version. */
export const FORMER_SCHEMA = {
  what: 'tables of a development version of cnapi, which cannot be upgraded',
  remedy:
    'start with an empty database: `npm start -- --data FOLDER` creates one in a new folder; ' +
    'for a deployment, create a new database and name it in databaseUrl',
} as const;

const LOCK_NOT_AVAILABLE = '55P03';
const LOCK_KEY = 0x63_6e_61_70; // "cnap"
const STATEMENT_TIMEOUT_MS = 10 * 60_000;

const ensureTable = `
  create table if not exists cnapi_migrations (
    subsystem text not null,
    number int not null,
    name text not null,
    digest text not null,
    applied_at timestamptz not null default clock_timestamp(),
    primary key (subsystem, number)
  )`;

/**
 * Everybody who uses a table waits behind a change that waits for the table's lock, and a dump
 * keeps all tables locked until it ends. A step therefore gives up soon and is retried later: each
 * try causes an outage of at most this length.
 */
const STEP_LOCK_TIMEOUT_MS = 100;

type Applied = Omit<Migration, 'sql'> & { digest: string };

/**
 * Applies missing steps: subsystem by subsystem in the order of the list, and each subsystem's in
 * order of number.
 * @throws MigrationError when the list contradicts itself or the database's record, or when a step
 * fails (it is undone, those before it stay); FormerSchemaError; DatabaseBusyError when another
 * client keeps a table locked that a step changes
 */
export async function migrate(
  database: Database,
  migrations: readonly Migration[],
  { log }: { log: Logger },
): Promise<void> {
  const ordered = inOrder(migrations);
  const before = await withMigrationLock(database, async (connection) => {
    if (await hasFormerSchema(connection)) throw new FormerSchemaError();
    await connection.query(ensureTable);
    const applied = await appliedSteps(connection);
    checkAppliedMigrations(ordered, applied);
    return applied;
  });
  for (const migration of ordered.filter((each) => !before.has(keyOf(each)))) {
    const isNew = await withMigrationLock(database, (connection) => apply(connection, migration));
    if (isNew) log.info({ migration: nameOf(migration) }, 'database: migration applied');
  }
}

/** Whether the database was created before steps had subsystems. */
export async function hasFormerSchema(connection: Queryable): Promise<boolean> {
  const { rows } = await connection.query<{ columns: string[] }>(
    `select array_agg(attname::text) as columns from pg_attribute
       where attrelid = to_regclass('cnapi_migrations') and attnum > 0 and not attisdropped
       having count(*) > 0`,
  );
  return rows.some(({ columns }) => !columns.includes('subsystem'));
}

/** `subsystem/number`. */
export function keyOf({ subsystem, number }: Pick<Migration, 'subsystem' | 'number'>): string {
  return `${subsystem}/${number}`;
}

/** The name of a migration in messages. */
function nameOf(migration: Pick<Migration, 'subsystem' | 'number' | 'name'>): string {
  return `${keyOf(migration)} '${migration.name}'`;
}

function inOrder(migrations: readonly Migration[]): Migration[] {
  const bySubsystem = Map.groupBy(migrations, ({ subsystem }) => subsystem);
  return [...bySubsystem.values()].flatMap((own) => {
    const ordered = own.toSorted((a, b) => a.number - b.number);
    for (const [index, migration] of ordered.entries()) {
      if (!Number.isInteger(migration.number) || migration.number < 1)
        throw new MigrationError(`migration ${nameOf(migration)}: not a number above 0`);
      const next = ordered[index + 1];
      if (next?.number === migration.number)
        throw new MigrationError(`migrations ${nameOf(migration)} and '${next.name}' have the same number`);
    }
    return ordered;
  });
}

/**
 * Within its subsystem, a new step must come after the applied ones. An applied step must not
 * change or disappear.
 */
function checkAppliedMigrations(migrations: readonly Migration[], applied: Map<string, Applied>): void {
  const isAfter = (step: Applied | Migration, other: Applied | Migration) =>
    step.subsystem === other.subsystem && step.number > other.number;
  for (const migration of migrations) {
    const recorded = applied.get(keyOf(migration));
    const later = [...applied.values()].find((other) => isAfter(other, migration));
    if (recorded !== undefined) checkUnchanged(migration, recorded);
    else if (later !== undefined) {
      throw new MigrationError(
        `migration ${nameOf(migration)} was never applied, but ${later.number} was; give it a number after that`,
      );
    }
  }
  const knownKeys = new Set(migrations.map(keyOf));
  for (const recorded of applied.values()) {
    const later = migrations.find((migration) => isAfter(migration, recorded));
    if (!knownKeys.has(keyOf(recorded)) && later !== undefined) {
      throw new MigrationError(
        `the database has migration ${nameOf(recorded)}, which this version lacks although it has ${later.number}; ` +
          `use the version that made this database, or ${FORMER_SCHEMA.remedy}`,
      );
    }
  }
}

function checkUnchanged(migration: Migration, recorded: Applied): void {
  const isSameName = recorded.name === migration.name;
  if (isSameName && recorded.digest === digestOf(migration)) return;
  const given = isSameName ? 'another text' : `'${recorded.name}'`;
  throw new MigrationError(
    `migration ${keyOf(migration)} is '${migration.name}' in this version, but the database was given ${given} under ` +
      `that number, and an applied step cannot be replaced; use the version that made this database, or ${FORMER_SCHEMA.remedy}`,
  );
}

/** Digest of the text. White space does not count, and neither do lines of comment. */
function digestOf({ sql }: Migration): string {
  const text = sql.replace(/^\s*--.*$/gm, '').replace(/\s+/g, ' ');
  return createHash('sha256').update(text.trim()).digest('hex');
}

async function appliedSteps(connection: Queryable): Promise<Map<string, Applied>> {
  const { rows } = await connection.query<Applied>('select subsystem, number, name, digest from cnapi_migrations');
  return new Map(rows.map((row) => [keyOf(row), row]));
}

async function apply(connection: Queryable, migration: Migration): Promise<boolean> {
  const { subsystem, number, name, sql } = migration;
  const applied = await appliedSteps(connection);
  if (applied.has(keyOf(migration))) return false;
  try {
    await connection.query(`set local lock_timeout = ${STEP_LOCK_TIMEOUT_MS}`);
    await connection.query(sql);
  } catch (error) {
    if (sqlStateOf(error) === LOCK_NOT_AVAILABLE) throw new DatabaseBusyError('locked', error);
    if (sqlStateOf(error) === undefined) throw error;
    throw new MigrationError(
      `migration ${nameOf(migration)} failed and was undone: ${(error as Error).message}`,
      error,
    );
  }
  await connection.query(
    `insert into cnapi_migrations (subsystem, number, name, digest) values ($1::text, $2::int, $3::text, $4::text)`,
    [subsystem, number, name, digestOf(migration)],
  );
  return true;
}

/** Runs `work` in a transaction; only one such transaction runs at a time among all instances. */
export function withMigrationLock<Result>(
  database: Database,
  work: (connection: Queryable) => Promise<Result>,
): Promise<Result> {
  return database.transaction(
    async (connection) => {
      await connection.query('select pg_advisory_xact_lock($1::bigint)', [LOCK_KEY]);
      return work(connection);
    },
    { statementTimeoutMs: STATEMENT_TIMEOUT_MS },
  );
}
