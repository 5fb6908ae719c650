/**
 * Reads the log once for all followers of this instance, while there are any: each period it has told changes numbered and
 * takes in what is new, into a window of bounded size. A follower takes from the window at its own pace; one that has
 * fallen out of it reads the log itself, so that nothing is ever kept for a slow one. A log that was set back (a standby
 * that was behind was promoted) gives the same ids to other events: it is taken in anew, and that is said.
 */
import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import type { LoggedEvent } from './event.ts';
import { readEventPage, readLog } from './event-store.ts';

export interface ReaderDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
  /** Has told changes numbered; resolves to the log's last event. */
  number(): Promise<number>;
  /** What was taken in is not in the log any more. */
  onSetBack(): void;
}

export const READ_MS = 150;
const PAGE = 1_000;
export const WINDOW = 4_000;

export class Reader {
  readonly #deps: ReaderDeps;
  readonly #stopping = new AbortController();
  readonly #listeners = new Set<() => void>();
  #window: LoggedEvent[] = [];
  /** The last event taken in; undefined while nobody follows. */
  #last: number | undefined;
  /** When that event was stored; undefined when it was not kept. */
  #lastStoredAtMs: number | undefined;
  #running: Promise<void> | undefined;
  #isFailing = false;

  constructor(deps: ReaderDeps) {
    this.#deps = deps;
  }

  /** Calls `onNews` after events were taken in, until the result is called. */
  listen(onNews: () => void): () => void {
    this.#listeners.add(onNews);
    this.#running ??= this.#run();
    return () => void this.#listeners.delete(onNews);
  }

  isPast(id: number): boolean {
    return this.#last !== undefined && id < this.#last;
  }

  /** Everything after `id` that was taken in so far; undefined when the window does not go back to it. */
  since(id: number): LoggedEvent[] | undefined {
    if (this.#last === undefined || id < this.#last - this.#window.length) return undefined;
    return id >= this.#last ? [] : this.#window.slice(id - this.#last);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    for (const onNews of this.#listeners) onNews();
  }

  async #run(): Promise<void> {
    const { clock } = this.#deps;
    while (this.#listeners.size > 0 && !this.#stopping.signal.aborted) {
      await this.#round();
      await clock.sleep(READ_MS, this.#stopping.signal);
    }
    // In the same turn as the look at who listens: whoever comes next begins anew.
    this.#window = [];
    this.#last = undefined;
    this.#running = undefined;
  }

  async #round(): Promise<void> {
    try {
      await this.#takeIn();
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing && !this.#stopping.signal.aborted)
        this.#deps.log.warn({ reason: messageOf(error) }, 'events: the log cannot be read');
      this.#isFailing = true;
    }
  }

  async #takeIn(): Promise<void> {
    const last = await this.#deps.number();
    if (this.#last === undefined) await this.#begin(last);
    else if (await this.#isSetBack(this.#last, last)) {
      await this.#begin(last);
      this.#deps.onSetBack();
    }
    if (this.#last === undefined) return;
    while (this.#last < last && !this.#stopping.signal.aborted) {
      const page = await readEventPage(this.#deps.database, {}, { after: this.#last, upTo: last, limit: PAGE });
      const newest = page.at(-1);
      // Trimmed meanwhile: followers read on their own, and are told of the gap.
      if (page.length !== (newest?.id ?? last) - this.#last) this.#window = [];
      this.#last = newest?.id ?? last;
      this.#lastStoredAtMs = newest?.storedAt.getTime();
      this.#window = newest === undefined ? [] : [...this.#window, ...page].slice(-WINDOW);
      this.#tell();
    }
  }

  async #begin(last: number): Promise<void> {
    this.#lastStoredAtMs = await this.#storedAtMs(last);
    this.#window = [];
    this.#last = last;
    this.#tell();
  }

  async #isSetBack(seen: number, last: number): Promise<boolean> {
    if (last <= seen || this.#lastStoredAtMs === undefined) return last < seen;
    const storedAtMs = await this.#storedAtMs(seen);
    return storedAtMs !== undefined && storedAtMs !== this.#lastStoredAtMs;
  }

  async #storedAtMs(id: number): Promise<number | undefined> {
    return (await readLog(this.#deps.database, id)).storedAt?.getTime();
  }

  #tell(): void {
    for (const onNews of this.#listeners) onNews();
  }
}
