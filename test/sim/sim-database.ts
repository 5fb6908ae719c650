/**
 * One simulated process's pool of connections to the one Postgres, with the limits and deadlines of
 * the real pool (lib/platform/postgres/pool.ts). A statement that was sent is executed even if its
 * process is dead or has given up.
 */
import { DatabaseUnavailableError } from '../../lib/platform/errors.ts';
import type { Database, Queryable, QueryResult, Values } from '../../lib/platform/postgres/database.ts';
import { asDatabaseError } from '../../lib/platform/postgres/unavailable.ts';
import type { SimPostgres, Statement } from './sim-postgres.ts';
import type { SimProcess } from './sim-process.ts';

export interface SimDatabaseDeps {
  process: SimProcess;
  postgres: SimPostgres;
  maxConnections: number;
  /** Without an answer after this time the connection is closed. */
  queryTimeoutMs: number;
}

/** Made when it is sent, as its values are. */
type Question<Result> = () => Pick<Statement<Result>, 'label' | 'text' | 'values' | 'run'>;

const CONNECT_TIMEOUT_MS = 5_000;

export class SimDatabase implements Database {
  readonly #deps: SimDatabaseDeps;
  readonly #waiting = new Set<() => void>();
  #free: number;
  #isStopped = false;

  constructor(deps: SimDatabaseDeps) {
    this.#deps = deps;
    this.#free = deps.maxConnections;
  }

  query<Row = Record<string, unknown>>(text: string, given?: Values): Promise<QueryResult<Row>> {
    return this.#ask(() => {
      const values = typeof given === 'function' ? given() : given;
      return { label: labelOf(text), text, values, run: (database) => database.query<Row>(text, values) };
    });
  }

  /**
   * Executed at one moment, because no other statement can come between on the one connection of
   * PGlite.
   */
  transaction<Result>(work: (connection: Queryable) => Promise<Result>): Promise<Result> {
    const run = (database: Database) => database.transaction(work);
    return this.#ask(() => ({ label: 'transaction', text: undefined, values: undefined, run }));
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
  }

  #ask<Result>(question: Question<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      const { process, queryTimeoutMs } = this.#deps;
      if (this.#isStopped) return reject(new DatabaseUnavailableError(new Error('the pool was ended')));
      const send = () => {
        timer.cancel();
        this.#waiting.delete(send);
        this.#send(question).then(resolve, reject);
      };
      const timer = process.clock.after(Math.min(CONNECT_TIMEOUT_MS, queryTimeoutMs), () => {
        this.#waiting.delete(send);
        reject(new DatabaseUnavailableError(new Error('timeout exceeded when trying to connect')));
      });
      this.#waiting.add(send);
      this.#next();
    });
  }

  #send<Result>(question: Question<Result>): Promise<Result> {
    const { process, postgres, queryTimeoutMs } = this.#deps;
    this.#free -= 1;
    return new Promise((resolve, reject) => {
      let isSettled = false;
      const settle = (how: () => void) => {
        if (isSettled) return;
        isSettled = true;
        timer.cancel();
        this.#free += 1;
        how();
        this.#next();
      };
      const answer = (how: () => void) => process.receive(process.random.between(0.1, 1), () => settle(how));
      const timer = process.clock.after(queryTimeoutMs, () =>
        settle(() => reject(new DatabaseUnavailableError(new Error(`no answer in ${queryTimeoutMs} ms`)))),
      );
      postgres.send<Result>({
        who: process.name,
        ...question(),
        answered: (result, read) => {
          // Its connections end with the process, unless its machine stops with it.
          if (read !== undefined) process.onKill(() => process.isPowerless || read());
          answer(() => (read?.() !== false ? resolve(result) : reject(asDatabaseError(brokenOff()))));
        },
        failed: (error) => answer(() => reject(asDatabaseError(error))),
      });
    });
  }

  #next(): void {
    if (this.#free <= 0) return;
    const [send] = this.#waiting;
    send?.();
  }
}

function brokenOff(): Error {
  return Object.assign(new Error('the connection broke in the middle of the answer'), { code: '57P01' });
}

/** The first words of a statement, with its subject. */
function labelOf(text: string): string {
  return text.trim().replace(/\s+/g, ' ').slice(0, 70);
}
