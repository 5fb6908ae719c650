/**
 * Reads one WebSocket of the agent link no faster than `link-quota.ts` allows its peer: pauses the
 * socket, and resumes it when the peer is within its quota again. Owned by the owner of the socket,
 * which is an instance's connection or an agent's. The owner reports every read to it, and the
 * values of every frame before they are created.
 */
import { RateLimiter } from '../../platform/limiting/rate-limiter.ts';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import type { ValueBudget } from './codec.ts';
import { FrameCounter } from './frame-counter.ts';
import { costOfRead, LINK_RATE, VALUE_BYTES } from './link-quota.ts';

interface LimitedSocket {
  pause(): void;
  resume(): void;
}

interface ReadLimiterDeps {
  clock: Clock;
  /** Counts the pauses. */
  counters?: { readsPaused: number };
}

/** Is charged for what one peer sends; several connections of the peer may share it. */
export interface ReadQuota {
  /** Returns for how many milliseconds the peer must not be read. */
  charge(cost: number, now: number): number;
}

export class ReadLimiter implements ValueBudget {
  readonly #socket: LimitedSocket;
  /** One object shared by all connections. */
  readonly #deps: ReadLimiterDeps;
  readonly #quota: ReadQuota;
  readonly #frames = new FrameCounter();
  #pause: Timer | undefined;
  #isEnded = false;

  /** `quota`: absent means one of this connection alone. */
  constructor(socket: LimitedSocket, deps: ReadLimiterDeps, quota?: ReadQuota) {
    this.#socket = socket;
    this.#deps = deps;
    this.#quota = quota ?? new RateLimiter(LINK_RATE);
  }

  get isPaused(): boolean {
    return this.#pause !== undefined;
  }

  /**
   * Returns the number of frames that began in `chunk`. No more than `maxFrames` of them are
   * charged: the owner ends the connection when there are more.
   */
  consumeRead(chunk: Uint8Array, now: number, maxFrames = Number.POSITIVE_INFINITY): number {
    const frames = this.#frames.count(chunk);
    this.#charge(costOfRead(chunk.length, Math.min(frames, maxFrames)), now);
    return frames;
  }

  consumeValues(values: number): void {
    this.#charge(values * VALUE_BYTES, this.#deps.clock.now());
  }

  /** Call it when the socket is closed. */
  end(): void {
    this.#isEnded = true;
    this.#pause?.cancel();
    this.#pause = undefined;
  }

  #charge(cost: number, now: number): void {
    const pauseMs = this.#quota.charge(cost, now);
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
