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

import { isTemporary } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock } from '../time/clock.ts';
import { Loop } from '../time/loop.ts';
import type { Database } from './database.ts';
import { readMigrations } from './migration-files.ts';
import { writeFailureReason } from './unavailable.ts';

const CHECK_MS = 1_000;
/** Each row fills a page, so the file must grow: existing pages could be written on a full disk. */
const CHECK_ROWS = 16;
const ROW_CHARS = 7_500;

export const writeCheckMigrations = readMigrations('postgres', import.meta.dirname);

interface WriteHealthDeps {
  database: Pick<Database, 'transaction'>;
  clock: Clock;
  log: Logger;
}

export class WriteHealth {
  readonly #deps: WriteHealthDeps;
  readonly #loop: Loop;
  #failureReason: string | undefined;
  /** Whether an error came since the last check. */
  #hasFailed = false;

  constructor(deps: WriteHealthDeps) {
    this.#deps = deps;
    this.#loop = new Loop({
      ...deps,
      what: 'database: check whether writes succeed',
      work: () => this.#check(),
      pauseMs: () => (this.#failureReason === undefined ? Number.POSITIVE_INFINITY : CHECK_MS),
    });
  }

  /** Why writes fail, for messages; undefined while they succeed. */
  get failureReason(): string | undefined {
    return this.#failureReason;
  }

  /** Called when any statement has failed. */
  noteError(error: unknown): void {
    const reason = writeFailureReason(error);
    if (reason === undefined) return;
    this.#hasFailed = true;
    const isNew = this.#failureReason === undefined;
    this.#failureReason = reason;
    if (!isNew) return;
    this.#deps.log.error({ reason, err: error }, 'database: writable -> writes fail');
    this.#loop.trigger();
  }

  /** Enables the checks, which begin with the first error. */
  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** The first check comes a period after the first error, and after a period without one. */
  async #check(): Promise<void> {
    const isQuiet = !this.#hasFailed;
    this.#hasFailed = false;
    const isWritable = this.#failureReason !== undefined && isQuiet && (await this.#isWritable()) && !this.#hasFailed;
    this.#hasFailed = false;
    if (!isWritable) return;
    this.#deps.log.info({ reason: this.#failureReason }, 'database: writes fail -> writable');
    this.#failureReason = undefined;
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
