/**
 * Whether the database takes writes. On a full disk an instance may hold its lease and read,
 * because the update of its own row needs no new page, while nothing else can be written. This
 * class therefore watches the errors of all statements. After an error that shows that writes fail,
 * it writes test pages each second and rolls them back, until that succeeds. Created by `app.ts`;
 * `/ready` asks it.
 *
 *     writable ──an error shows that writes fail──▶ failing
 *     failing ──a check succeeds, and no such error came during it──▶ writable
 */

import type { Clock } from '../clock.ts';
import { isTemporary, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Database } from './database.ts';
import type { Migration } from './migrations.ts';
import { writeTroubleOf } from './unavailable.ts';

const CHECK_MS = 1_000;
/** Each row fills a page, so the file must grow: existing pages could be written on a full disk. */
const CHECK_ROWS = 16;
const ROW_CHARS = 7_500;

/** The table never has a row. */
export const writeCheckMigrations: Migration[] = [
  {
    number: 162,
    name: 'checks of writing',
    sql: `
      create table cnapi_write_checks (filler text not null);
      alter table cnapi_write_checks alter column filler set storage plain`,
  },
];

interface WriteHealthDeps {
  database: Pick<Database, 'transaction'>;
  clock: Clock;
  log: Logger;
}

export class WriteHealth {
  readonly #deps: WriteHealthDeps;
  readonly #stopping = new AbortController();
  #trouble: string | undefined;
  /** Counts the errors, so an error during a check is noticed. */
  #failures = 0;
  #running: Promise<void> | undefined;

  constructor(deps: WriteHealthDeps) {
    this.#deps = deps;
  }

  /** Why writes fail, for messages; undefined while they succeed. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Called when any statement has failed. */
  noteError(error: unknown): void {
    const trouble = writeTroubleOf(error);
    if (trouble === undefined) return;
    this.#failures += 1;
    const isNew = this.#trouble === undefined;
    this.#trouble = trouble;
    if (isNew) this.#deps.log.error({ trouble, reason: messageOf(error) }, 'database: writable -> writes fail');
    if (!this.#stopping.signal.aborted) this.#running ??= this.#checkUntilWritable();
  }

  /** Does nothing: work begins with the first error. */
  start(): void {}

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #checkUntilWritable(): Promise<void> {
    const { clock, log } = this.#deps;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const before = this.#failures;
      await clock.sleep(CHECK_MS, signal);
      if (signal.aborted || !(await this.#isWritable()) || this.#failures !== before) continue;
      log.info({ trouble: this.#trouble }, 'database: writes fail -> writable');
      this.#trouble = undefined;
      break;
    }
    this.#running = undefined;
  }

  async #isWritable(): Promise<boolean> {
    try {
      await this.#deps.database.transaction(async (connection) => {
        await connection.query(
          `insert into cnapi_write_checks (filler) select repeat('x', $1::int) from generate_series(1, $2::int)`,
          [ROW_CHARS, CHECK_ROWS],
        );
        throw new RollBack();
      });
    } catch (error) {
      if (error instanceof RollBack) return true;
      if (!isTemporary(error)) this.#deps.log.error({ err: error }, 'database: cannot check whether writes succeed');
    }
    return false;
  }
}

class RollBack extends Error {}
