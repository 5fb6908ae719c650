/**
 * The one tick in which all time-based decisions are counted. A tick is healthy when this process
 * was not delayed before it. Then it passes `checkMs` to its listeners, after the event loop has
 * read the data that had arrived. A late tick passes nothing (law 4). Driver; its listeners must
 * not throw.
 */
import type { Clock, Timer } from './clock.ts';

interface Countdown {
  leftMs: number;
  callback: () => void;
}

type TickListener = (tickMs: number) => void;
/** `lateMs`: how late the tick was. */
type FireListener = (lateMs: number) => void;
type StallListener = (stalledMs: number) => void;

export class HealthyTimer {
  readonly #clock: Clock;
  readonly #checkMs: number;
  readonly #tickListeners: TickListener[] = [];
  readonly #fireListeners: FireListener[] = [];
  readonly #stallListeners: { overMs: number; listener: StallListener }[] = [];
  readonly #countdowns = new Set<Countdown>();
  #timer: Timer | undefined;
  #lastAt = 0;
  #healthyAt = 0;

  constructor({ clock, checkMs }: { clock: Clock; checkMs: number }) {
    this.#clock = clock;
    this.#checkMs = checkMs;
  }

  onTick(listener: TickListener): void {
    this.#tickListeners.push(listener);
  }

  /** Calls `listener` at each tick, healthy or not. */
  onFire(listener: FireListener): void {
    this.#fireListeners.push(listener);
  }

  /**
   * Calls `listener` once, at the first tick after this process was stalled for more than `overMs`.
   */
  onStall(overMs: number, listener: StallListener): void {
    this.#stallListeners.push({ overMs, listener });
  }

  /**
   * Calls `callback` once `delayMs` of healthy ticks have passed: for deadlines after which a peer
   * is considered dead.
   */
  after(delayMs: number, callback: () => void): Timer {
    const countdown = { leftMs: delayMs, callback };
    this.#countdowns.add(countdown);
    return { cancel: () => this.#countdowns.delete(countdown) };
  }

  /** How long ago the last healthy tick, or the start, was. */
  get sinceHealthyMs(): number {
    return this.#clock.now() - this.#healthyAt;
  }

  /** The last moment at which this process certainly kept up: now, unless a tick is overdue. */
  get lastHealthyAt(): number {
    const now = this.#clock.now();
    return now - this.#healthyAt > this.#checkMs * 2 ? this.#healthyAt : now;
  }

  start(): void {
    this.#lastAt = this.#clock.now();
    this.#healthyAt = this.#lastAt;
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
    for (const listener of this.#fireListeners) listener(Math.max(0, elapsedMs - this.#checkMs));
    for (const { overMs, listener } of this.#stallListeners) if (elapsedMs > overMs) listener(elapsedMs);
    if (elapsedMs > this.#checkMs * 2) return;
    this.#clock.afterPoll(() => this.#count(firedAt));
  }

  #count(firedAt: number): void {
    const now = this.#clock.now();
    if (this.#timer === undefined || now - firedAt > this.#checkMs) return;
    this.#healthyAt = now;
    for (const listener of this.#tickListeners) listener(this.#checkMs);
    for (const countdown of this.#countdowns) this.#countDown(countdown);
  }

  #countDown(countdown: Countdown): void {
    countdown.leftMs -= this.#checkMs;
    if (countdown.leftMs > 0) return;
    this.#countdowns.delete(countdown);
    countdown.callback();
  }
}
