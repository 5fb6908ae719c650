/**
 * Repeats a piece of work while there is some, with a bounded number of runs at once. Items that
 * gather during one run are done by the next. Used for the tasks posted to legacy agents
 * (`lib/tasks/posts.ts`), whose work is one loop over the instance's own claims. Work that gathers
 * items for one statement belongs in `moray/batch-queue.ts`, which isolates a locked or slow item;
 * here one such item delays all. So the statements of this work must skip locked rows. Failed work
 * is retried after a pause that doubles from 100 ms to 1 s; an outage is logged once.
 *
 *     idle ──kick──▶ running ──no more work──▶ idle        running ──failed──▶ pausing ──▶ running
 *                    any ──stop──▶ stopped (waits for the runs in flight and ignores their results)
 */
import { isTemporary, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock, Timer } from '../ports/clock.ts';

export interface RunnerOptions {
  clock: Clock;
  log: Logger;
  /** Names the work in the log. */
  what: string;
  hasWork: () => boolean;
  /**
   * Takes a batch from the queue and does it. Before it throws, it puts back the items to be
   * retried.
   */
  work: () => Promise<void>;
  /** Default 1. */
  lanes?: number;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 1_000;

export class Runner {
  readonly #options: RunnerOptions;
  readonly #lanes: number;
  readonly #inFlight = new Set<Promise<void>>();
  #timer: Timer | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #pauseMs = 0;
  #isStopped = false;

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#lanes = options.lanes ?? 1;
  }

  /** Announces that there is work, to be run within `delayMs` or after the present pause. */
  kick(delayMs = 0): void {
    if (this.#isStopped) return;
    const waitMs = Math.max(delayMs, this.#pauseMs);
    if (waitMs === 0) this.#run();
    else this.#runAfter(waitMs);
  }

  /** Ends the pauses and waits for the runs in flight; then nothing runs any more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await Promise.all(this.#inFlight);
  }

  #runAfter(waitMs: number): void {
    const { clock } = this.#options;
    const at = clock.now() + waitMs;
    if (this.#timerAt <= at) return;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#timer = clock.after(waitMs, () => {
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#run();
    });
  }

  #run(): void {
    if (this.#isStopped || this.#inFlight.size >= this.#lanes || !this.#options.hasWork()) return;
    const running = this.#runOnce().then((done) => {
      this.#inFlight.delete(running);
      if (done) this.#run();
      else this.kick();
    });
    this.#inFlight.add(running);
  }

  async #runOnce(): Promise<boolean> {
    try {
      await this.#options.work();
      this.#noteSuccess();
      return true;
    } catch (error) {
      this.#noteFailure(error);
      return false;
    }
  }

  #noteSuccess(): void {
    if (this.#pauseMs > 0) this.#options.log.info({ what: this.#options.what }, 'continues after a failure');
    this.#pauseMs = 0;
  }

  #noteFailure(error: unknown): void {
    if (this.#isStopped) return;
    const { log, what } = this.#options;
    const isOutage = isTemporary(error);
    if (!isOutage) log.error({ err: error, what }, 'failed; will be retried');
    else if (this.#pauseMs === 0) log.warn({ what, reason: messageOf(error) }, 'waits for the database');
    this.#pauseMs = Math.min(Math.max(this.#pauseMs * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
  }
}
