/**
 * The Database over PGlite: Postgres in this process with one connection. Statements and
 * transactions run one by one.
 */
import { type PGlite, types } from '@electric-sql/pglite';
import { silentLogger } from '../../lib/platform/log.ts';
import {
  type Database,
  parseInt8,
  type Queryable,
  type QueryResult,
  type Values,
} from '../../lib/platform/postgres/database.ts';
import { type Migration, migrate } from '../../lib/platform/postgres/migrations.ts';
import { openPglite } from './pglite-image.ts';
import type { Teardown } from './postgres.ts';

/** A new empty in-process database, closed when `t` ends; with `migrations` applied if given. */
export async function freshPglite(
  t: Teardown,
  { migrations = [] as readonly Migration[] } = {},
): Promise<PgliteDatabase> {
  const database = await PgliteDatabase.open();
  t.teardown(() => database.stop());
  if (migrations.length > 0) await migrate(database, migrations, { log: silentLogger });
  return database;
}

interface Connection {
  query(text: string, values: unknown[]): Promise<Result>;
  exec(text: string): Promise<Result[]>;
}

interface Result {
  rows: unknown[];
  affectedRows?: number;
}

type Connections = Connection & Pick<PGlite, 'transaction' | 'close'>;

export class PgliteDatabase implements Database {
  readonly #pglite: Connections;
  #stopped: Promise<void> | undefined;

  constructor(pglite: Connections) {
    this.#pglite = pglite;
  }

  static async open(): Promise<PgliteDatabase> {
    const pglite = await openPglite({ parsers: { [types.INT8]: parseInt8 } });
    await pglite.exec(`set timezone = 'UTC'`);
    return new PgliteDatabase(pglite);
  }

  query<Row = Record<string, unknown>>(text: string, values?: Values): Promise<QueryResult<Row>> {
    return run<Row>(this.#pglite, text, values);
  }

  async transaction<Result>(work: (connection: Queryable) => Promise<Result>): Promise<Result> {
    return this.#pglite.transaction((connection) => work({ query: (text, values) => run(connection, text, values) }));
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#pglite.close();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

async function run<Row>(connection: Connection, text: string, given?: Values): Promise<QueryResult<Row>> {
  const values = typeof given === 'function' ? given() : given;
  const results = values === undefined ? await connection.exec(text) : [await connection.query(text, [...values])];
  const last = results.at(-1);
  const rows = (last?.rows ?? []) as Row[];
  return { rows, rowCount: rows.length > 0 ? rows.length : (last?.affectedRows ?? 0) };
}
