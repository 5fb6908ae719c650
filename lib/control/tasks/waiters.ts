/**
 * Waits for tasks and follows their events, any number of each on any instance. Correct by reading
 * alone; the bus makes it prompt. Called by `Tasks` for REST. Every wait ends with the task's
 * end, at its timeout, when its caller disconnects, or when the instance stops.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { LastRead, Watches } from '../../platform/waits/watches.ts';
import type { RecordedTaskEvent, TaskRow } from './store/task.ts';
import { TaskNotFoundError } from './store/task-errors.ts';
import { readEvents, readTask, type TaskPosition } from './store/task-store.ts';

export interface WaitOptions {
  timeoutMs: number;
  /** Ends the wait with the signal's reason when the caller has disconnected. */
  signal?: AbortSignal;
  /** Ends the wait as its timeout does, because this instance is leaving. */
  endSignal?: AbortSignal;
}

export type FollowOptions = Pick<WaitOptions, 'signal' | 'endSignal'>;

const PAGE = 50;

export class Waiters {
  readonly #database: Queryable;
  readonly #watches: Watches<TaskPosition>;
  #waits = 0;
  #follows = 0;

  constructor(database: Queryable, watches: Watches<TaskPosition>) {
    this.#database = database;
    this.#watches = watches;
  }

  get waits(): number {
    return this.#waits;
  }

  get follows(): number {
    return this.#follows;
  }

  /**
   * Returns the ended task, or its present state at the timeout. A failed task is not an error:
   * check `outcome`. The wait continues while the database is unreachable.
   * @throws TaskNotFoundError, TooManyWaitersError, WaitStoppedError, DatabaseUnavailableError, the
   * signal's reason
   */
  async wait(id: string, options: WaitOptions): Promise<TaskRow> {
    const seen = await this.#ended(id, options);
    const row = seen?.position?.row ?? (await readTask(this.#database, id));
    if (row === undefined) throw new TaskNotFoundError(id);
    return row;
  }

  async #ended(id: string, options: WaitOptions): Promise<LastRead<TaskPosition> | undefined> {
    const watch = this.#watches.open(id, false);
    this.#waits += 1;
    try {
      return await watch.until((position) => position === undefined || position.isEnded, options);
    } finally {
      this.#waits -= 1;
      watch.close();
    }
  }

  /**
   * The events after `afterSeq` (0: all), then live ones. Reads one page at a time, as the reader
   * takes them, and buffers nothing for a slow one. Returns after the end, or when `endSignal` is
   * aborted. @throws TaskNotFoundError, TooManyWaitersError, WaitStoppedError,
   * DatabaseUnavailableError, the signal's reason
   */
  async *follow(
    id: string,
    afterSeq: number,
    options: FollowOptions = {},
  ): AsyncGenerator<RecordedTaskEvent, void, undefined> {
    const watch = this.#watches.open(id, true);
    this.#follows += 1;
    try {
      for (let seq = afterSeq; ; ) {
        const seen = await watch.until(
          (position) => position === undefined || position.isEnded || position.lastSeq > seq,
          options,
        );
        const page = await readEvents(this.#database, id, { afterSeq: seq, limit: PAGE });
        if (page === undefined) throw new TaskNotFoundError(id);
        for (const event of page.events) {
          yield event;
          seq = event.seq;
          if (event.name === 'end') return;
        }
        if (page.events.length > 0) continue;
        if (page.isEnded || options.endSignal?.aborted) return;
        // The database has fewer events than before: a standby that lagged behind was promoted.
        watch.invalidate(seen);
      }
    } finally {
      this.#follows -= 1;
      watch.close();
    }
  }
}
