/**
 * Tells listeners that a container has written to its log. While nothing is written this costs
 * nothing but a rare look; a log that is written all the time is looked at 20 times a second, or as
 * often as a listener wants. Without
 * inotify, for example because too many files are watched, only polling remains.
 *
 *                 event              no change for one period
 *     watching ───────────► looking ───────────────────────────► watching
 */
import { type FSWatcher, watch } from 'node:fs';
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import type { LogFiles } from './log-files.ts';

interface LogWatchDeps {
  clock: Clock;
  files: LogFiles;
  /** Default 10 s. */
  slowPollMs?: number | undefined;
}

const POLL_MS = 50;
const SLOW_POLL_MS = 10_000;

export class LogWatch {
  readonly #deps: LogWatchDeps;
  /** How often each wants a log looked at that is written all the time. */
  readonly #listeners = new Map<() => void, number>();
  #watcher: FSWatcher | undefined;
  #timer: Timer | undefined;
  #seen = '';

  constructor(deps: LogWatchDeps) {
    this.#deps = deps;
  }

  get isUsed(): boolean {
    return this.#listeners.size > 0;
  }

  /** Calls the listener after changes, and at least once. Returns what ends that. */
  listen(listener: () => void, pollMs = POLL_MS): () => void {
    this.#listeners.set(listener, pollMs);
    this.#lookIn(0);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#rest();
    };
  }

  /** Checks now: the directory of the log may be new. */
  look(): void {
    if (this.isUsed) this.#lookIn(0);
  }

  #lookIn(ms: number): void {
    this.#rest();
    this.#timer = this.#deps.clock.after(ms, () => void this.#look());
  }

  #rest(): void {
    this.#timer?.cancel();
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  async #look(): Promise<void> {
    const hasChanged = await this.#hasChanged();
    if (!this.isUsed) return;
    if (hasChanged) return this.#notify();
    const { slowPollMs = SLOW_POLL_MS } = this.#deps;
    this.#lookIn(slowPollMs);
    this.#watch();
    // What was written before the watch began.
    if ((await this.#hasChanged()) && this.isUsed) this.#notify();
  }

  #notify(): void {
    this.#lookIn(Math.min(...this.#listeners.values()));
    for (const listener of this.#listeners.keys()) listener();
  }

  #watch(): void {
    try {
      const watcher = watch(this.#deps.files.directory, () => {
        if (this.#watcher === watcher) this.#lookIn(0);
      });
      watcher.on('error', () => watcher.close());
      this.#watcher = watcher;
    } catch {
      // The slow look remains.
    }
  }

  async #hasChanged(): Promise<boolean> {
    const current = await this.#deps.files.current().catch(() => undefined);
    const looks = current === undefined ? 'none' : `${current.inode} ${current.size}`;
    const hasChanged = looks !== this.#seen;
    this.#seen = looks;
    return hasChanged;
  }
}
