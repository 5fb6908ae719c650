/**
 * Reads one WebSocket of the agent link no faster than `allowance.ts` allows its peer: pauses the
 * socket, and resumes it when the debt is paid. Owned by the owner of the socket, which is an
 * instance's connection or an agent's. The owner reports every read to it, and the values of every
 * frame before they are created.
 */
import type { Clock, Timer } from '../platform/clock.ts';
import { consume, costOfRead, pauseMsOf, VALUE_BYTES } from './allowance.ts';
import type { ValuePayer } from './codec.ts';
import { FrameCounter } from './frame-counter.ts';

interface LimitedSocket {
  pause(): void;
  resume(): void;
}

interface ReadLimiterDeps {
  clock: Clock;
  /** Counts the pauses. */
  counters?: { readsPaused: number };
}

/** An allowance that several connections have together. */
export interface SharedCost {
  /** Pays for the cost; returns by how much its connection's own cost is multiplied. */
  charge(cost: number, now: number): number;
}

export class ReadLimiter implements ValuePayer {
  readonly #socket: LimitedSocket;
  /** One object shared by all connections. */
  readonly #deps: ReadLimiterDeps;
  readonly #shared: readonly SharedCost[];
  readonly #frames = new FrameCounter();
  #paidAt: number;
  #pause: Timer | undefined;
  #isEnded = false;

  constructor(socket: LimitedSocket, deps: ReadLimiterDeps, shared: readonly SharedCost[] = []) {
    this.#socket = socket;
    this.#shared = shared;
    this.#deps = deps;
    this.#paidAt = deps.clock.now();
  }

  get isPaused(): boolean {
    return this.#pause !== undefined;
  }

  payForRead(chunk: Uint8Array, now: number): void {
    this.#pay(costOfRead(chunk.length, this.#frames.count(chunk)), now);
  }

  payForValues(values: number): void {
    this.#pay(values * VALUE_BYTES, this.#deps.clock.now());
  }

  /** Call it when the socket is closed. */
  end(): void {
    this.#isEnded = true;
    this.#pause?.cancel();
    this.#pause = undefined;
  }

  #pay(cost: number, now: number): void {
    let price = 1;
    for (const one of this.#shared) price = Math.max(price, one.charge(cost, now));
    this.#paidAt = consume(cost * price, this.#paidAt, now);
    const pauseMs = pauseMsOf(this.#paidAt, now);
    if (pauseMs > 0 && !this.#isEnded) this.#pauseFor(pauseMs);
  }

  #pauseFor(ms: number): void {
    const { clock, counters } = this.#deps;
    if (this.#pause === undefined) {
      this.#socket.pause();
      if (counters !== undefined) counters.readsPaused += 1;
    }
    this.#pause?.cancel();
    this.#pause = clock.after(ms, () => {
      this.#pause = undefined;
      this.#socket.resume();
    });
  }
}
