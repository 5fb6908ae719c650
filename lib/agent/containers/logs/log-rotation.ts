/**
 * Keeps the log of one run within its limits while the agent lives: it asks the monitor for a new
 * file when the current one is full, and removes the oldest.
 *
 * The monitor also begins a new file by itself, after a number of bytes (log-files.ts). If a
 * request came in just then, it would replace a file that the agent has not seen. So the agent
 * counts along, and does not ask shortly before: the monitor's own new file serves as well.
 */
import type { ContainerSpec } from '../container.ts';
import { type CurrentLog, type LogFiles, monitorLimit } from './log-files.ts';

/**
 * Bytes that the monitor may write before it receives a request: many times those since the last
 * look.
 */
const MIN_MARGIN_BYTES = 8 * 1024 * 1024;
const MARGIN_LOOKS = 8;

export class LogRotation {
  readonly #files: LogFiles;
  readonly #limits: ContainerSpec['log'];
  #seen: CurrentLog | undefined;
  /** Whether the file that was seen last is to be replaced. */
  #isAsked = false;
  /** What the monitor has written to earlier files since it has begun one by itself. */
  #counted = 0;
  #lastCheck: Promise<unknown> = Promise.resolve();

  constructor(files: LogFiles, limits: ContainerSpec['log']) {
    this.#files = files;
    this.#limits = limits;
  }

  /** Call it after changes. Looks come one after the other. */
  check(): Promise<void> {
    const looked = this.#lastCheck.then(() => this.#check());
    this.#lastCheck = looked.catch(() => undefined);
    return looked;
  }

  async #check(): Promise<void> {
    // A file without a number must not be replaced.
    const { numbers, current } = await this.#files.adopt();
    if (current === undefined) return;
    if (this.#seen !== undefined && current.inode !== this.#seen.inode) {
      const before = await this.#files.sizeOf(numbers.at(-2));
      this.#counted = this.#isAsked ? this.#counted + before : 0;
      this.#isAsked = false;
    }
    const isSame = current.inode === this.#seen?.inode;
    const grownBy = current.size - (isSame ? (this.#seen?.size ?? 0) : 0);
    this.#seen = current;
    if (!this.#isAsked && this.#isFull(current.size, grownBy)) this.#isAsked = await this.#files.reopen();
    await this.#files.prune(this.#limits.maxFiles);
  }

  #isFull(size: number, grownBy: number): boolean {
    const margin = Math.max(MIN_MARGIN_BYTES, MARGIN_LOOKS * grownBy);
    return size >= this.#limits.maxBytes && this.#counted + size + margin < monitorLimit(this.#limits);
  }
}
