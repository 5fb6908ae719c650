/**
 * Reads the log once for all followers of this instance, while there are any: each period it has told changes numbered and
 * takes in what is new, into a window of bounded size. A follower takes from the window at its own pace; one that has
 * fallen out of it reads the log itself, so that nothing is ever kept for a slow one.
 *
 * A log that was set back (a standby that was behind was promoted) gives the same ids to other events. So each look begins with
 * the event that was the last one taken in: if it is another now, the log is taken in anew, and that is said.
 */
import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import { isAnother, type LoggedEvent, type Position, positionOf } from './event.ts';
import { readEventPage } from './event-store.ts';

export interface ReaderDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
  /** Has told changes numbered; resolves to the log's last event. */
  number(): Promise<number>;
  /** What was taken in is not in the log any more. */
  onSetBack(): void;
}

/** What a follower finds in the window. */
export interface News {
  events: LoggedEvent[];
  /** There is nothing after them yet. */
  isEnd: boolean;
}

export const READ_MS = 150;
const PAGE = 1_000;
export const WINDOW = 4_000;

export class Reader {
  readonly #deps: ReaderDeps;
  readonly #stopping = new AbortController();
  readonly #listeners = new Set<() => void>();
  /** Without holes; ends with the last event taken in, where that was kept. */
  #window: LoggedEvent[] = [];
  /** The last event taken in; undefined while nobody follows. */
  #last: Position | undefined;
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
    return this.#last !== undefined && id < this.#last.id;
  }

  /**
   * At most `limit` of what was taken in after `position`. Undefined when the window does not hold its event; `foreign` when
   * that number is another event's now.
   */
  since(position: Position, limit: number): News | 'foreign' | undefined {
    const [first] = this.#window;
    const place = position.id - (first?.id ?? position.id);
    const known = this.#window[place];
    if (known === undefined) return undefined;
    if (isAnother(known, position)) return 'foreign';
    const end = place + 1 + limit;
    return { events: this.#window.slice(place + 1, end), isEnd: end >= this.#window.length };
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
    if (this.#last === undefined) return this.#begin(last);
    let at: Position = this.#last;
    do {
      const range = { from: at.id, upTo: last, limit: PAGE };
      const page = last < at.id ? [] : await readEventPage(this.#deps.database, {}, range);
      if (last < at.id || isAnother(page[0], at)) {
        await this.#begin(last);
        return this.#deps.onSetBack();
      }
      if (last === at.id) return;
      at = this.#add(page, at) ?? { id: last, storedAtMs: 0 };
      this.#last = at;
      this.#tell();
    } while (at.id < last && !this.#stopping.signal.aborted);
  }

  /** Returns where it stands then; undefined when nothing of the page is kept any more. */
  #add(page: readonly LoggedEvent[], at: Position): Position | undefined {
    const news = page.filter(({ id }) => id > at.id);
    const newest = news.at(-1);
    // Trimmed meanwhile: followers read on their own, and are told of the gap.
    const before = page[0]?.id === at.id ? this.#window : [];
    this.#window = newest === undefined ? [] : [...before, ...news].slice(-WINDOW);
    return newest && positionOf(newest);
  }

  async #begin(last: number): Promise<void> {
    this.#window = await readEventPage(this.#deps.database, {}, { from: last, upTo: last, limit: 1 });
    const [event] = this.#window;
    this.#last = event === undefined ? { id: last, storedAtMs: 0 } : positionOf(event);
    this.#tell();
  }

  #tell(): void {
    for (const onNews of this.#listeners) onNews();
  }
}
