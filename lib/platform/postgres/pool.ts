/**
 * The Database over a pool of Postgres connections. It owns the connections and every timeout on
 * them: connecting, each statement (by the server, and by this side if the server is silent), each
 * lock, each idle transaction. It therefore notices a server that is gone, frozen or partitioned,
 * and replaces the connection instead of waiting. A lost database makes statements fail with
 * DatabaseUnavailableError; a locked row, a slow statement or one that is too large for the network
 * with DatabaseBusyError. Neither crashes the process.
 *
 *     available ──a statement or connection fails──▶ lost ──a statement succeeds──▶ available
 *     (each change is logged)
 */
import pg from 'pg';
import { DatabaseUnavailableError, isTemporary, isUnanswered, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock } from '../time/clock.ts';
import { DatabaseClient } from './client.ts';
import { IDLE_IN_TRANSACTION_MS, LOCK_TIMEOUT_MS, Sockets, sessionSettings, socketSettings } from './connection.ts';
import type { Database, Queryable, QueryResult, StatementOptions, TransactionOptions, Values } from './database.ts';
import { DatabaseHosts } from './hosts.ts';
import { LimitedQuery, type StatementLimits, settingsText } from './limited-query.ts';
import { asDatabaseError, isConnectionLost, unansweredError } from './unavailable.ts';

export interface PostgresDeps {
  /** A URL of one host or several, or the hosts that all pools of an instance share. */
  url: string | DatabaseHosts;
  /**
   * A pooler in transaction mode is in between, so nothing may depend on a session. Default: none.
   */
  pooler?: 'transaction' | undefined;
  /** Shown in pg_stat_activity. */
  applicationName: string;
  log: Logger;
  clock: Clock;
  /** Default 10. With one connection, statements run one after the other. */
  maxConnections?: number;
  /**
   * Called with the duration of each statement or transaction, including failed ones and the wait
   * for a connection.
   */
  onDone?: ((seconds: number) => void) | undefined;
  /** Called with each error of a statement or a connection. */
  onError?: ((error: unknown) => void) | undefined;
  /** The server ends a statement after this. Default 10 s. */
  statementTimeoutMs?: number;
  /**
   * The connection is destroyed after this time without an answer. Default statementTimeoutMs + 2
   * s. The server gives up an answer that this side does not read after the same time. Keep it
   * below `leaseMs`, so no lock outlives its instance.
   */
  queryTimeoutMs?: number;
  /** Default 2 s; at most four fifths of the statement timeout. */
  lockTimeoutMs?: number;
  /** Limit for getting a connection, from the pool or a new one (from any host). Default 5 s. */
  connectTimeoutMs?: number;
}

interface PoolStats {
  total: number;
  idle: number;
  waiting: number;
}

interface PoolStatement {
  text: string;
  values?: Values | undefined;
  name?: string | undefined;
  /**
   * Settings sent with the statement. Such a statement cannot be prepared: the next one may run on
   * another server session.
   */
  limits?: StatementLimits | undefined;
}

/** The pool makes its clients with a subclass of DatabaseClient. */
type PooledClient = DatabaseClient & pg.PoolClient;

/** The maximum part of a statement's time that it may wait for one lock. */
const LOCK_SHARE = 0.8;
const STOP_PATIENCE_MS = 3_000;
const LOG_AGAIN_MS = 60_000;

export class PostgresDatabase implements Database {
  readonly #pool: pg.Pool;
  readonly #hosts: DatabaseHosts;
  readonly #sockets = new Sockets();
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #queryTimeoutMs: number;
  readonly #defaults: StatementLimits;
  readonly #onDone: ((seconds: number) => void) | undefined;
  readonly #onError: ((error: unknown) => void) | undefined;
  /** Settings of each transaction, if there is a pooler. */
  readonly #limits: StatementLimits | undefined;
  #lostSince: number | undefined;
  #stopped: Promise<void> | undefined;

  constructor(deps: PostgresDeps) {
    const statementTimeoutMs = deps.statementTimeoutMs ?? 10_000;
    this.#queryTimeoutMs = deps.queryTimeoutMs ?? statementTimeoutMs + 2_000;
    this.#clock = deps.clock;
    this.#onDone = deps.onDone;
    this.#onError = deps.onError;
    this.#log = deps.log;
    this.#hosts = typeof deps.url === 'string' ? new DatabaseHosts(deps.url, deps.log) : deps.url;
    const pooled = deps.pooler !== undefined;
    const limits = {
      statementTimeoutMs,
      // Shorter than the statement timeout; otherwise a locked row would look like a slow
      // statement.
      lockTimeoutMs: Math.min(deps.lockTimeoutMs ?? LOCK_TIMEOUT_MS, statementTimeoutMs * LOCK_SHARE),
      idleInTransactionMs: IDLE_IN_TRANSACTION_MS,
    };
    this.#defaults = limits;
    this.#limits = pooled ? limits : undefined;
    const settings = {
      application_name: deps.applicationName,
      connectionTimeoutMillis: deps.connectTimeoutMs ?? Math.min(5_000, this.#queryTimeoutMs),
      stream: () => this.#sockets.create(),
      ...socketSettings,
      ...(pooled ? {} : sessionSettings(limits, { answerMs: this.#queryTimeoutMs })),
    };
    const hosts = this.#hosts;
    class Client extends DatabaseClient {
      constructor() {
        super(hosts, settings, { pooled });
      }
    }
    this.#pool = new pg.Pool({ ...settings, Client, max: deps.maxConnections ?? 10 });
    this.#pool.on('error', (error) => {
      this.#onError?.(error);
      this.#noteFailure(error);
    });
    // The pool listens to idle connections only. Without this, one that breaks while in use would
    // crash the process.
    this.#pool.on('connect', (client) => client.on('error', (error) => this.#noteFailure(error)));
  }

  get stats(): PoolStats {
    return { total: this.#pool.totalCount, idle: this.#pool.idleCount, waiting: this.#pool.waitingCount };
  }

  async query<Row = Record<string, unknown>>(
    text: string,
    values?: Values,
    options: StatementOptions = {},
  ): Promise<QueryResult<Row>> {
    const { name, onSent } = options;
    const limits = this.#limitsOf(options);
    return this.#withClient((client) => {
      onSent?.();
      return this.#run<Row>(client, { text, values, name, limits }, this.#queryTimeoutMs);
    });
  }

  async transaction<Result>(
    work: (connection: Queryable) => Promise<Result>,
    options: TransactionOptions = {},
  ): Promise<Result> {
    const { statementTimeoutMs } = options;
    const timeoutMs = statementTimeoutMs === undefined ? this.#queryTimeoutMs : statementTimeoutMs + 2_000;
    return this.#withClient(async (client) => {
      const run: Queryable['query'] = (text, values, options) =>
        this.#run(client, { text, values, name: this.#limits ? undefined : options?.name }, timeoutMs);
      await run(this.#begin(statementTimeoutMs));
      try {
        const result = await work({ query: run });
        await run('commit');
        return result;
      } catch (error) {
        if (!isConnectionLost(error)) await run('rollback');
        throw error;
      }
    });
  }

  /** Closes all connections; statements still running after 3 s fail. */
  stop(): Promise<void> {
    this.#stopped ??= this.#close();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #close(): Promise<void> {
    const patience = this.#clock.after(STOP_PATIENCE_MS, () => this.#sockets.destroy());
    await this.#pool.end();
    await this.#sockets.closed();
    patience.cancel();
  }

  async #withClient<Result>(work: (client: PooledClient) => Promise<Result>): Promise<Result> {
    const start = this.#clock.now();
    const client = await this.#acquire();
    try {
      const result = await work(client);
      client.release();
      this.#noteSuccess();
      return result;
    } catch (error) {
      this.#giveBack(client, error);
      throw this.#explain(error);
    } finally {
      this.#onDone?.((this.#clock.now() - start) / 1000);
    }
  }

  /** Gets a connection from the pool; a new one is to the first host that takes writes. */
  async #acquire(): Promise<PooledClient> {
    for (let tries = 1; ; tries++) {
      try {
        return (await this.#pool.connect()) as PooledClient;
      } catch (error) {
        if (tries >= this.#hosts.count || !isConnectionLost(error)) throw this.#explain(error);
      }
    }
  }

  async #run<Row>(client: PooledClient, statement: PoolStatement, timeoutMs: number): Promise<QueryResult<Row>> {
    try {
      const result = await this.#answered(client, statement, timeoutMs);
      const last = Array.isArray(result) ? result.at(-1) : result;
      return { rows: (last?.rows ?? []) as Row[], rowCount: last?.rowCount ?? 0 };
    } catch (error) {
      throw asDatabaseError(error);
    }
  }

  /** After no answer in time the caller must destroy the connection. */
  #answered(
    client: PooledClient,
    statement: PoolStatement,
    timeoutMs: number,
  ): Promise<pg.QueryResult | pg.QueryResult[]> {
    return new Promise((resolve, reject) => {
      const before = client.traffic;
      const timer = this.#clock.after(timeoutMs, () => {
        const { read, written } = client.traffic;
        reject(unansweredError({ read: read - before.read, written: written - before.written }, timeoutMs));
      });
      submit(client, statement)
        .then(resolve, reject)
        .finally(() => timer.cancel());
    });
  }

  #giveBack(client: PooledClient, error: unknown): void {
    // Otherwise a host that greets and then does not answer would be used for ever.
    if (isDown(error)) this.#hosts.failed(client.databaseHost);
    const isLost = isConnectionLost(error);
    if (isLost) client.abandon();
    client.release(isLost);
  }

  /** The settings to send with a statement; undefined if those of its connection apply. */
  #limitsOf({ statementTimeoutMs, lockTimeoutMs }: StatementOptions): StatementLimits | undefined {
    if (statementTimeoutMs === undefined && lockTimeoutMs === undefined) return this.#limits;
    const { idleInTransactionMs, ...defaults } = this.#defaults;
    const statementMs = Math.min(statementTimeoutMs ?? Number.POSITIVE_INFINITY, defaults.statementTimeoutMs);
    const lockMs = Math.min(lockTimeoutMs ?? defaults.lockTimeoutMs, statementMs * LOCK_SHARE);
    return { statementTimeoutMs: statementMs, lockTimeoutMs: lockMs, idleInTransactionMs };
  }

  #begin(statementTimeoutMs?: number): string {
    if (statementTimeoutMs === undefined) return this.#limits ? `begin; ${settingsText(this.#limits)}` : 'begin';
    const limits = {
      statementTimeoutMs,
      lockTimeoutMs: statementTimeoutMs,
      idleInTransactionMs: IDLE_IN_TRANSACTION_MS,
    };
    return `begin; ${settingsText(limits)}`;
  }

  #explain(error: unknown): unknown {
    this.#onError?.(error);
    if (isDown(error)) this.#noteFailure(error);
    return asDatabaseError(error);
  }

  #noteFailure(error: unknown): void {
    if (this.#lostSince !== undefined || this.#stopped !== undefined) return;
    this.#lostSince = this.#clock.now();
    const cause = error instanceof DatabaseUnavailableError ? error.cause : error;
    this.#log.warn({ reason: messageOf(cause) }, 'database: available -> lost');
  }

  #noteSuccess(): void {
    if (this.#lostSince === undefined) return;
    const lostMs = Math.round(this.#clock.now() - this.#lostSince);
    this.#lostSince = undefined;
    this.#log.info({ lost_ms: lostMs }, 'database: lost -> available');
  }
}

interface AwaitedDatabase {
  database: Queryable;
  clock: Clock;
  log: Logger;
  signal?: AbortSignal;
}

/**
 * Resolves once the database answers. It waits without limit for an unreachable database and logs
 * that each minute.
 * @throws the signal's reason when aborted; a database error that waiting does not fix (a wrong
 * password)
 */
export async function waitForDatabase({ database, clock, log, signal }: AwaitedDatabase): Promise<void> {
  const beganAt = clock.now();
  let logAgainAtMs = 0;
  for (let delayMs = 100; ; delayMs = Math.min(delayMs * 2, 2_000)) {
    signal?.throwIfAborted();
    try {
      await database.query('select 1');
      return;
    } catch (error) {
      if (!isTemporary(error)) throw error;
      const waitedMs = Math.round(clock.now() - beganAt);
      if (waitedMs >= logAgainAtMs) {
        const fields = { reason: messageOf(error.cause), waited_ms: waitedMs };
        log[logAgainAtMs === 0 ? 'info' : 'warn'](fields, 'waiting for the database');
        logAgainAtMs = waitedMs + LOG_AGAIN_MS;
      }
      await clock.sleep(delayMs, signal);
    }
  }
}

/** An unanswered large statement says nothing about the host. */
const isDown = (error: unknown): boolean => isConnectionLost(error) && !isUnanswered(error);

function submit(client: PooledClient, statement: PoolStatement): Promise<pg.QueryResult | pg.QueryResult[]> {
  const { text, name, limits } = statement;
  const values = typeof statement.values === 'function' ? statement.values() : statement.values;
  if (values === undefined) return client.query(limits ? `${settingsText(limits)}; ${text}` : text);
  if (limits === undefined) return client.query({ text, values: [...values], ...(name === undefined ? {} : { name }) });
  return new Promise((resolve, reject) => {
    client.query(
      new LimitedQuery({ text, values: [...values] }, limits, (error, result) =>
        error ? reject(error) : resolve(result),
      ),
    );
  });
}
