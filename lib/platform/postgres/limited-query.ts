/**
 * A statement that brings its own settings, for connections behind a pooler in transaction mode.
 * There the server session changes with each transaction, so session settings would apply to
 * another client. Settings and statement are sent together and form one transaction. This adds no
 * round trip, and none while a lock is held (law 5). Used by `pool.ts` only.
 */
import pg from 'pg';

export interface StatementLimits {
  statementTimeoutMs: number;
  lockTimeoutMs: number;
  idleInTransactionMs: number;
}

/** Goes before one or several statements without values. */
export function settingsText(limits: StatementLimits): string {
  const [statement, lock, idle] = valuesOf(limits).map(Number);
  return (
    `set local statement_timeout = ${statement}; set local lock_timeout = ${lock}; ` +
    `set local idle_in_transaction_session_timeout = ${idle}; set local timezone = 'UTC'`
  );
}

/** The part of the driver's query that this file overrides; the driver's types lack it. */
interface DriverQuery extends pg.Submittable {
  prepare(connection: WireConnection): void;
  handleDataRow(message: unknown): void;
  handleCommandComplete(message: unknown, connection: unknown): void;
}

interface WireConnection {
  parse(message: { text: string }): void;
  bind(message: { values: readonly string[] }): void;
  execute(message: Record<string, never>): void;
}

type Callback = (error: unknown, result: pg.QueryResult) => void;
const DriverQuery = pg.Query as unknown as new (
  config: { text: string; values: unknown[]; queryMode: 'extended' },
  values: undefined,
  callback: Callback,
) => DriverQuery;

const SETTINGS = `select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true),
  set_config('idle_in_transaction_session_timeout', $3, true), set_config('timezone', 'UTC', true)`;

export class LimitedQuery extends DriverQuery {
  readonly #settings: readonly string[];
  #areSet = false;

  constructor(statement: { text: string; values: unknown[] }, limits: StatementLimits, callback: Callback) {
    super({ ...statement, queryMode: 'extended' }, undefined, callback);
    this.#settings = valuesOf(limits);
  }

  override prepare(connection: WireConnection): void {
    connection.parse({ text: SETTINGS });
    connection.bind({ values: this.#settings });
    connection.execute({});
    super.prepare(connection);
  }

  override handleDataRow(message: unknown): void {
    if (this.#areSet) super.handleDataRow(message);
  }

  override handleCommandComplete(message: unknown, connection: unknown): void {
    if (this.#areSet) super.handleCommandComplete(message, connection);
    else this.#areSet = true;
  }
}

const valuesOf = ({ statementTimeoutMs, lockTimeoutMs, idleInTransactionMs }: StatementLimits): string[] =>
  [statementTimeoutMs, lockTimeoutMs, idleInTransactionMs].map((ms) => String(Math.ceil(ms)));
