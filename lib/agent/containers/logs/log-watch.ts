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
  readonly #listeners = new Set<Listener>();
  #watcher: FSWatcher | undefined;
  #timer: Timer | undefined;
  #seen = '';

  constructor(deps: LogWatchDeps) {
    this.#deps = deps;
  }

  get isUsed(): boolean {
    return this.#listeners.size > 0;
  }

  /**
   * Calls the listener after changes, at most once in `pollMs`, and at least once. Returns what
   * ends that.
   */
  listen(tell: () => void, pollMs = POLL_MS): () => void {
    const listener = new Listener(this.#deps.clock, { tell, pollMs });
    this.#listeners.add(listener);
    this.#lookIn(0);
    return () => {
      this.#listeners.delete(listener);
      listener.stop();
      if (this.#listeners.size === 0) this.#rest();
    };
  }

  /** Checks now: the directory of the log may be new. */
  poll(): void {
    if (this.isUsed) this.#lookIn(0);
  }

  #lookIn(ms: number): void {
    this.#rest();
    this.#timer = this.#deps.clock.after(ms, () => void this.#poll());
  }

  #rest(): void {
    this.#timer?.cancel();
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  async #poll(): Promise<void> {
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
    this.#lookIn(Math.min(...[...this.#listeners].map(({ pollMs }) => pollMs)));
    for (const listener of this.#listeners) listener.change();
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

/**
 * One listener and its period. The log is looked at as often as the most impatient listener wants;
 * the others need not read it as often.
 */
class Listener {
  readonly pollMs: number;
  readonly #clock: Clock;
  readonly #tell: () => void;
  #toldAt = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  constructor(clock: Clock, { tell, pollMs }: { tell: () => void; pollMs: number }) {
    this.#clock = clock;
    this.#tell = tell;
    this.pollMs = pollMs;
  }

  /** Tells of a change, when the period since the last call is over. */
  change(): void {
    if (this.#timer !== undefined) return;
    const leftMs = this.#toldAt + this.pollMs - this.#clock.now();
    if (leftMs <= 0) this.#call();
    else this.#timer = this.#clock.after(leftMs, () => this.#call());
  }

  stop(): void {
    this.#timer?.cancel();
  }

  #call(): void {
    this.#timer = undefined;
    this.#toldAt = this.#clock.now();
    this.#tell();
  }
}
