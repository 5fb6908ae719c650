/**
 * The one tick that everything which judges by time counts in. A tick is healthy when this process was not held up before
 * it: then it hands out `checkMs` to its listeners, after the event loop has read what had arrived. A late tick hands out
 * nothing (law 4). Driver; its listeners must not throw.
 */
import type { Clock, Timer } from '../ports/clock.ts';

export type TickListener = (tickMs: number) => void;
export type StallListener = (stalledMs: number) => void;

export class Ticker {
  readonly #clock: Clock;
  readonly #checkMs: number;
  readonly #tickListeners: TickListener[] = [];
  readonly #stallListeners: { overMs: number; listener: StallListener }[] = [];
  #timer: Timer | undefined;
  #lastAt = 0;

  constructor({ clock, checkMs }: { clock: Clock; checkMs: number }) {
    this.#clock = clock;
    this.#checkMs = checkMs;
  }

  onTick(listener: TickListener): void {
    this.#tickListeners.push(listener);
  }

  /** Told once, at the first tick after this process stood still for more than `overMs`. */
  onStall(overMs: number, listener: StallListener): void {
    this.#stallListeners.push({ overMs, listener });
  }

  start(): void {
    this.#lastAt = this.#clock.now();
    this.#timer = this.#clock.every(this.#checkMs, () => this.#fire());
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #fire(): void {
    const firedAt = this.#clock.now();
    const elapsedMs = firedAt - this.#lastAt;
    this.#lastAt = firedAt;
    for (const { overMs, listener } of this.#stallListeners) if (elapsedMs > overMs) listener(elapsedMs);
    if (elapsedMs > this.#checkMs * 2) return;
    this.#clock.afterPoll(() => this.#count(firedAt));
  }

  #count(firedAt: number): void {
    if (this.#timer === undefined || this.#clock.now() - firedAt > this.#checkMs) return;
    for (const listener of this.#tickListeners) listener(this.#checkMs);
  }
}
