/**
 * Reads the log once for all followers of this instance, while there are any. Each period it has
 * the recorded changes numbered and reads the new events into a window of bounded size. A follower
 * reads from the window at its own pace. One that has fallen behind the window reads the log
 * itself, so nothing is ever stored for a slow follower.
 *
 * A log that was set back (a standby that was behind was promoted) gives the same ids to other
 * events. So each read begins with the last event in the window. If that is now another event, the
 * reader starts again and reports it.
 */

import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { Loop } from '../../platform/time/loop.ts';
import { type LoggedEvent, type Position, positionOf, wasRenumbered } from './event.ts';
import { readEventPage } from './event-store.ts';

interface ReaderDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
  /** Has the recorded changes numbered; resolves to the id of the log's last event. */
  number(): Promise<number>;
  /** The events in the window are not in the log any more. */
  onSetBack(): void;
}

/** What a follower finds in the window. */
export interface EventWindowPage {
  events: LoggedEvent[];
  /** There are no events after these yet. */
  isEnd: boolean;
}

const READ_MS = 150;
const PAGE = 1_000;
export const WINDOW_EVENTS = 4_000;

export class LogReader {
  readonly #deps: ReaderDeps;
  readonly #listeners = new Set<() => void>();
  /** Without holes; ends with the last event read, if that was stored. */
  #window: LoggedEvent[] = [];
  /** The position of the last event read; undefined while nobody follows. */
  #last: Position | undefined;
  readonly #loop: Loop;

  constructor(deps: ReaderDeps) {
    this.#deps = deps;
    this.#loop = new Loop({
      ...deps,
      what: 'events: read of the log',
      work: (signal) => this.#round(signal),
      pauseMs: () => (this.#listeners.size > 0 || this.#last !== undefined ? READ_MS : Number.POSITIVE_INFINITY),
      minPauseMs: READ_MS,
    });
  }

  /** Calls `onNewEvents` whenever new events were read, until the returned function is called. */
  listen(onNewEvents: () => void): () => void {
    this.#listeners.add(onNewEvents);
    this.#loop.start();
    if (this.#listeners.size === 1) this.#loop.trigger();
    return () => void this.#listeners.delete(onNewEvents);
  }

  isPast(id: number): boolean {
    return this.#last !== undefined && id < this.#last.id;
  }

  /**
   * Returns at most `limit` events of the window after `position`. Undefined when the window does
   * not hold the position's event; `foreign` when its number now belongs to another event.
   */
  since(position: Position, limit: number): EventWindowPage | 'foreign' | undefined {
    const [first] = this.#window;
    const place = position.id - (first?.id ?? position.id);
    const known = this.#window[place];
    if (known === undefined) return undefined;
    if (wasRenumbered(known, position)) return 'foreign';
    const end = place + 1 + limit;
    return { events: this.#window.slice(place + 1, end), isEnd: end >= this.#window.length };
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    for (const onNewEvents of this.#listeners) onNewEvents();
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (this.#listeners.size > 0) return this.#readNew(signal);
    this.#window = [];
    this.#last = undefined;
  }

  async #readNew(signal: AbortSignal): Promise<void> {
    const last = await this.#deps.number();
    if (this.#last === undefined) return this.#begin(last);
    let at: Position = this.#last;
    do {
      const range = { from: at.id, upTo: last, limit: PAGE };
      const page = last < at.id ? [] : await readEventPage(this.#deps.database, {}, range);
      if (last < at.id || wasRenumbered(page[0], at)) {
        await this.#begin(last);
        return this.#deps.onSetBack();
      }
      if (last === at.id) return;
      at = this.#add(page, at) ?? { id: last, storedAtMs: 0 };
      this.#last = at;
      this.#notify();
    } while (at.id < last && !signal.aborted);
  }

  /** Returns the new position; undefined when no event of the page is stored any more. */
  #add(page: readonly LoggedEvent[], at: Position): Position | undefined {
    const newer = page.filter(({ id }) => id > at.id);
    const newest = newer.at(-1);
    // Events were deleted meanwhile: followers read the log themselves and receive the gap.
    const before = page[0]?.id === at.id ? this.#window : [];
    this.#window = newest === undefined ? [] : [...before, ...newer].slice(-WINDOW_EVENTS);
    return newest && positionOf(newest);
  }

  async #begin(last: number): Promise<void> {
    this.#window = await readEventPage(this.#deps.database, {}, { from: last, upTo: last, limit: 1 });
    const [event] = this.#window;
    this.#last = event === undefined ? { id: last, storedAtMs: 0 } : positionOf(event);
    this.#notify();
  }

  #notify(): void {
    for (const onNewEvents of this.#listeners) onNewEvents();
  }
}
