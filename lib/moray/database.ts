/**
 * What the stores need of a database: one statement in, rows out. Two implementations are in use: a pool of Postgres
 * connections (`pool.ts`) and PGlite in process (tests, simulation). SQL must run alike on Postgres 15, 18 and PGlite.
 */
export interface QueryResult<Row> {
  rows: Row[];
  /** Rows returned or touched by the statement. */
  rowCount: number;
}

export interface StatementOptions {
  /**
   * The statement is prepared once on each connection under this name, and not parsed and planned each time: for what runs
   * hundreds of times a second. One name, one text, for ever the same.
   */
  name?: string;
}

export interface Queryable {
  /**
   * Runs one statement. Values are sent as parameters, never spliced in. int8 comes back as a number (values past
   * 2^53 throw), timestamptz as a Date, json and jsonb parsed, numeric as text. A text of several statements may be run
   * without values; the result is then the last one's.
   * @throws DatabaseUnavailableError when the connection is lost or cannot be had in time; the database's own error
   * (with its SQLSTATE in `.code`) otherwise.
   */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
    options?: StatementOptions,
  ): Promise<QueryResult<Row>>;
}

export interface TransactionOptions {
  /** How long each statement may take, waits for locks included, in place of the database's defaults. */
  statementTimeoutMs?: number;
}

export interface Database extends Queryable {
  /** Runs `work` in one transaction on one connection. For the bucket store's batch and migrations only (law 5). */
  transaction<Result>(work: (connection: Queryable) => Promise<Result>, options?: TransactionOptions): Promise<Result>;
  /** Rows of a statement one by one, through a cursor where the database has one; released when the loop ends early. */
  stream<Row = Record<string, unknown>>(text: string, values?: readonly unknown[]): AsyncIterable<Row>;
  stop(): Promise<void>;
}

/** The SQLSTATE of a database's error, if that is what was thrown. */
export function sqlStateOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

/** int8 text as a number; a value that a number cannot hold exactly throws instead of being rounded. */
export function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`int8 value ${text} does not fit a number`);
  return value;
}
