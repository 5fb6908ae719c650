/**
 * The database as the stores use it: one statement in, rows out. It has two implementations: a pool
 * of Postgres connections (`pool.ts`) and PGlite in process (tests, simulation). SQL must run alike
 * on Postgres 15, 18 and PGlite.
 */
export interface QueryResult<Row> {
  rows: Row[];
  /** Rows returned or changed by the statement. */
  rowCount: number;
}

export interface StatementOptions {
  /**
   * Prepares the statement once on each connection under this name, instead of parsing and planning
   * it each time. For statements that run hundreds of times a second. A name always has the same
   * text.
   */
  name?: string;
  /** How long each wait for a lock may take; overrides the database's default. */
  lockTimeoutMs?: number | undefined;
  /** After this the server ends the statement. A longer one than the database's has no effect. */
  statementTimeoutMs?: number | undefined;
  /** The wait for a connection is over. */
  onSent?: (() => void) | undefined;
}

/**
 * A function is called when the statement is sent, after the wait for a connection. Values such as
 * ages, which grow during that wait, are computed then.
 */
export type Values = readonly unknown[] | (() => readonly unknown[]);

export interface Queryable {
  /**
   * Runs one statement. Values are sent as parameters, never inserted into the text. int8 is
   * returned as a number (values past 2^53 throw), timestamptz as a Date, json and jsonb parsed,
   * numeric as text. A text of several statements may be run without values; the result is then
   * that of the last one.
   * @throws DatabaseUnavailableError when the connection is lost or none is available in time;
   * DatabaseBusyError when a row stays locked or the statement takes too long; otherwise the
   * database's own error (with its SQLSTATE in `.code`)
   */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: Values,
    options?: StatementOptions,
  ): Promise<QueryResult<Row>>;
}

export interface TransactionOptions {
  /**
   * How long each statement may take, including waits for locks; overrides the database's defaults.
   */
  statementTimeoutMs?: number;
}

export interface Database extends Queryable {
  /**
   * Runs `work` in one transaction on one connection. Only for changes of the schema (law 5).
   */
  transaction<Result>(work: (connection: Queryable) => Promise<Result>, options?: TransactionOptions): Promise<Result>;
  stop(): Promise<void>;
}

/** The same database, with other limits on how long its statements take and wait for a lock. */
export function withLimits(
  database: Queryable,
  limits: Pick<StatementOptions, 'lockTimeoutMs' | 'statementTimeoutMs'>,
): Queryable {
  return { query: (text, values, options) => database.query(text, values, { ...options, ...limits }) };
}

/** The SQLSTATE of a database error; undefined for any other value. */
export function sqlStateOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

/** Parses int8; throws for a value that a number cannot hold exactly. */
export function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`int8 value ${text} does not fit a number`);
  return value;
}
