/**
 * The body of a request, or the rest of it, that nobody wants: read, so that it stays in no buffer,
 * charged like a body that is used, and limited. Used by `exchange.ts`.
 */
import type { IncomingMessage } from 'node:http';
import type { Clock } from '../../../platform/time/clock.ts';
import { FREE_BODY_BYTES, FREE_BODY_PIECES, PIECE_BYTES } from '../limits/body-costs.ts';

/** Limit for the rest of a body. Each piece costs PIECE_BYTES besides its length. */
const MAX_BYTES = 8 * 1024 * 1024;
/** The same limit for a caller that sends too many requests. */
const MAX_BYTES_OVER_RATE = 64 * 1024;
/** Limits the time for the rest of a body after its request has been answered. */
const DRAIN_MS = 1000;
const FREE_BYTES = FREE_BODY_BYTES + FREE_BODY_PIECES * PIECE_BYTES;

export class DroppedBody {
  readonly #request: IncomingMessage;
  readonly #clock: Clock;
  readonly #charge: (bytes: number) => boolean;
  #cost = 0;
  #maxBytes = MAX_BYTES;
  #isBroken = false;
  #endDrain: (() => void) | undefined;
  #count: ((piece: Buffer) => void) | undefined;

  /** `charge` returns whether the sender is over its limit now. */
  constructor(request: IncomingMessage, { clock, charge }: { clock: Clock; charge: (bytes: number) => boolean }) {
    this.#request = request;
    this.#clock = clock;
    this.#charge = charge;
  }

  /**
   * Reads and drops from now on, until `stop()`. A second call replaces `onTooMuch`. With
   * `isOptional`, nothing needs the rest: it is too much as soon as the sender is over its limit.
   */
  drop(onTooMuch: () => void, { isOptional }: { isOptional: boolean }): void {
    this.stop();
    this.#count = (piece) => {
      const cost = piece.length + PIECE_BYTES;
      this.#cost += cost;
      const isOverLimit = this.#cost > FREE_BYTES && this.#charge(cost);
      if (this.#cost > this.#maxBytes || (isOptional && isOverLimit)) onTooMuch();
    };
    this.#request.on('data', this.#count);
    // The reader of a body that it refuses has paused it.
    this.#request.resume();
  }

  /**
   * Closing a connection while its caller still sends resets it, and the caller (undici, for
   * example) sees EPIPE and not the answer. So some of the body is read and dropped before `onEnd`.
   * Bounded, so nobody can send gigabytes this way, and charged like the part that was read before.
   * A sender over its limit is not waited for.
   */
  drain(onEnd: () => void): void {
    const request = this.#request;
    const end = () => {
      timer.cancel();
      this.stop();
      request.pause();
      onEnd();
    };
    const timer = this.#clock.after(DRAIN_MS, end);
    request.once('end', end).once('close', end);
    this.drop(end, { isOptional: true });
    this.#endDrain = end;
    if (this.#isBroken) end();
  }

  /** Lowers the limit to MAX_BYTES_OVER_RATE. */
  limit(): void {
    this.#maxBytes = MAX_BYTES_OVER_RATE;
  }

  /** The rest will never come. */
  breakOff(): void {
    this.#isBroken = true;
    this.#endDrain?.();
  }

  stop(): void {
    if (this.#count !== undefined) this.#request.off('data', this.#count);
    this.#count = undefined;
  }
}
