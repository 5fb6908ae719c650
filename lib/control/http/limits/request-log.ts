/**
 * Decides which requests are logged, and which lines about what agents send. One source causes a
 * limited number of lines per second; the rest is counted, and one line reports the number. So
 * nobody can fill the disk, or hide among their own lines. Owned by the listener.
 */

import { RateLimiters } from '../../../platform/limiting/rate-limiter.ts';
import type { Logger } from '../../../platform/log.ts';
import { normalizeAddress, sourceOf } from '../../../platform/network/networks.ts';
import type { Clock, Timer } from '../../../platform/time/clock.ts';

interface RequestLogDeps {
  /** Per source; 0: no limit. */
  linesPerSecond: number;
  clock: Clock;
  log: Logger;
}

/** The burst is what the rate allows in this time. */
const BURST_S = 2;
const SUMMARY_MS = 10_000;
/** Sources that a summary names; the others are summed up. */
const MAX_NAMED = 10;
const MAX_COUNTED = 1000;

export class RequestLog {
  readonly #deps: RequestLogDeps;
  readonly #lines: RateLimiters | undefined;
  readonly #unlogged = new Map<string, number>();
  #others = 0;
  #total = 0;
  #timer: Timer | undefined;

  constructor(deps: RequestLogDeps) {
    this.#deps = deps;
    const { linesPerSecond } = deps;
    this.#lines = RateLimiters.ifLimited({ perSecond: linesPerSecond, burst: linesPerSecond * BURST_S });
  }

  /** Lines that were not written, so far. */
  get unlogged(): number {
    return this.#total;
  }

  /** Whether one more line may be logged for this address; if not, it is only counted. */
  mayWrite(address: string): boolean {
    const source = sourceOf(normalizeAddress(address));
    if (this.#lines === undefined || this.#lines.of(source).take(this.#deps.clock.now()) === 0) return true;
    this.#total += 1;
    const count = this.#unlogged.get(source);
    if (count === undefined && this.#unlogged.size >= MAX_COUNTED) this.#others += 1;
    else this.#unlogged.set(source, (count ?? 0) + 1);
    this.#timer ??= this.#deps.clock.after(SUMMARY_MS, () => this.#summarize());
    return false;
  }

  /** Logs the last counts. */
  stop(): void {
    if (this.#timer !== undefined) this.#summarize();
  }

  #summarize(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const counts = [...this.#unlogged].sort(([, a], [, b]) => b - a);
    const named = Object.fromEntries(counts.slice(0, MAX_NAMED));
    const others = counts.slice(MAX_NAMED).reduce((sum, [, count]) => sum + count, this.#others);
    this.#unlogged.clear();
    this.#others = 0;
    this.#deps.log.warn(
      { sources: named, others },
      'log: requests, frames and sessions without a line of their own (logLinesPerSource)',
    );
  }
}
