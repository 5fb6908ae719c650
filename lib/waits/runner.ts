/**
 * Runs a piece of work again and again while there is some, a bounded number at once: what gathers during one run is
 * done by the next, so that under load one statement does the work of many. Used by drivers that
 * keep their own queues. Work that fails is tried again after a pause, 100 ms doubling to 1 s; an outage is logged once.
 *
 *     idle ──kick──▶ running ──no more work──▶ idle        running ──failed──▶ pausing ──▶ running
 *                    any ──stop──▶ stopped (runs in flight are waited for; how they end is no matter any more)
 */
import { DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock, Timer } from '../ports/clock.ts';

export interface RunnerOptions {
  clock: Clock;
  log: Logger;
  /** For the log. */
  what: string;
  hasWork: () => boolean;
  /** Takes a batch from the queue and does it; puts back what is to be tried again before it throws. */
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

  /** There is work to do within `delayMs`. */
  kick(delayMs = 0): void {
    if (this.#isStopped) return;
    const waitMs = Math.max(delayMs, this.#pauseMs);
    if (waitMs === 0) this.#run();
    else this.#runAfter(waitMs);
  }

  /** Ends the pauses, waits for what runs; nothing runs any more. */
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
    if (this.#pauseMs > 0) this.#options.log.info({ what: this.#options.what }, 'goes on after a failure');
    this.#pauseMs = 0;
  }

  #noteFailure(error: unknown): void {
    if (this.#isStopped) return;
    const { log, what } = this.#options;
    const isOutage = error instanceof DatabaseUnavailableError;
    if (!isOutage) log.error({ err: error, what }, 'failed; will be tried again');
    else if (this.#pauseMs === 0) log.warn({ what, reason: messageOf(error) }, 'waits for the database');
    this.#pauseMs = Math.min(Math.max(this.#pauseMs * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
  }
}
