/**
 * A statement that brings its own settings along, for connections that are not ours alone: behind a pooler in transaction
 * mode the server's session is another one each time, and what a session was set to is another's. Settings and statement go
 * out together and are one transaction, so that there is no round trip more and none while a lock is held (law 5).
 * Called by `pool.ts` only.
 */
import pg from 'pg';

export interface Limits {
  statementTimeoutMs: number;
  lockTimeoutMs: number;
  idleInTransactionMs: number;
}

/** To go before one statement, or several, without values. */
export function settingsText(limits: Limits): string {
  const [statement, lock, idle] = valuesOf(limits).map(Number);
  return (
    `set local statement_timeout = ${statement}; set local lock_timeout = ${lock}; ` +
    `set local idle_in_transaction_session_timeout = ${idle}; set local timezone = 'UTC'`
  );
}

/** The part of the driver's query that is gone between; its types say nothing of it. */
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

  constructor(statement: { text: string; values: unknown[] }, limits: Limits, callback: Callback) {
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

const valuesOf = ({ statementTimeoutMs, lockTimeoutMs, idleInTransactionMs }: Limits): string[] =>
  [statementTimeoutMs, lockTimeoutMs, idleInTransactionMs].map((ms) => String(Math.ceil(ms)));
