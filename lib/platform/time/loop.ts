/**
 * Repeats a piece of work until it is stopped: polls, watches, periodic writes. Rounds of one loop
 * never overlap. A round that throws ends that round only; the next one tries again. The first of
 * several failures is logged, and their end. A temporary error of the database is a warning; any
 * other error is a defect of this program and is logged as an error with its stack.
 *
 *     new ──start()──▶ working ──the round ended or failed──▶ pausing
 *     new ──start(), first: 'pause'──▶ pausing
 *     pausing ──the pause is over, or trigger()──▶ working
 *     working ──trigger()──▶ working, and the next pause has only its shortest length
 *     new, pausing ──stop()──▶ stopped, without a timer
 *     working ──stop()──▶ stopping (the round's signal is aborted) ──the round ended──▶ stopped
 */
import { isTemporary, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock } from './clock.ts';

interface LoopDeps {
  clock: Clock;
  log: Logger;
  /** What a round does, for the log: "<what> failed", "<what> succeeds again". */
  what: string;
  /** One round. `signal` aborts when the loop is stopped, which waits for the round. */
  work: (signal: AbortSignal) => Promise<unknown>;
  /**
   * The pause from the end of a round to the next one. A function is called after each round with
   * its duration. Infinity: until `trigger()` is called.
   */
  pauseMs: number | ((tookMs: number) => number);
  /** `trigger()` shortens no pause below this. */
  minPauseMs?: number;
  /** Replaces the pause after a failed round; `trigger()` does not shorten it. */
  retryMs?: number;
  /** What `start()` begins with; default: a round. */
  first?: 'round' | 'pause';
}

export class Loop {
  readonly #deps: LoopDeps;
  readonly #stopping = new AbortController();
  /** Ends the pause; a new one for each round and the pause after it. */
  #wake = new AbortController();
  #running: Promise<void> | undefined;
  /** The kind of the last failure; undefined after a success. */
  #failure: string | undefined;

  constructor(deps: LoopDeps) {
    this.#deps = deps;
  }

  /** Does nothing when called again, or after `stop()`. */
  start(): void {
    this.#running ??= this.#run();
  }

  /** Begins the next round as soon as possible. Calls before it begins have one effect. */
  trigger(): void {
    this.#wake.abort();
  }

  /** Resolves when no round is running. A round may call it, but must not wait for it. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, first = 'round', minPauseMs = 0, retryMs } = this.#deps;
    const { signal } = this.#stopping;
    if (first === 'pause') await this.#rest(this.#pauseAfter(0));
    while (!signal.aborted) {
      this.#wake = new AbortController();
      const beganAt = clock.now();
      const hasSucceeded = await this.#round();
      const pauseMs = this.#pauseAfter(clock.now() - beganAt);
      if (!hasSucceeded && retryMs !== undefined) await clock.sleep(retryMs, signal);
      else {
        if (minPauseMs > 0) await clock.sleep(minPauseMs, signal);
        await this.#rest(pauseMs - minPauseMs);
      }
    }
  }

  async #round(): Promise<boolean> {
    const { log, what, work } = this.#deps;
    const { signal } = this.#stopping;
    try {
      await work(signal);
      if (this.#failure !== undefined && !signal.aborted) log.info(`${what} succeeds again`);
      this.#failure = undefined;
      return true;
    } catch (error) {
      // Connections are cut while a program stops.
      if (!signal.aborted) this.#noteFailure(error);
      return false;
    }
  }

  #noteFailure(error: unknown): void {
    const { log, what } = this.#deps;
    const failure = isTemporary(error) ? 'outage' : messageOf(error);
    if (failure === this.#failure) return;
    this.#failure = failure;
    if (isTemporary(error)) log.warn({ reason: messageOf(error.cause ?? error) }, `${what} failed`);
    else log.error({ err: error }, `${what} failed`);
  }

  #pauseAfter(tookMs: number): number {
    const { pauseMs } = this.#deps;
    return typeof pauseMs === 'number' ? pauseMs : pauseMs(tookMs);
  }

  async #rest(ms: number): Promise<void> {
    const { signal } = this.#wake;
    if (ms < Number.POSITIVE_INFINITY) await this.#deps.clock.sleep(Math.max(0, ms), signal);
    else if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  }
}
