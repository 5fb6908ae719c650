/**
 * The body of a request, or the rest of it, that nobody wants: read, so that it stays in no buffer,
 * charged like a body that is used, and limited. Used by `exchange.ts`.
 */
import type { IncomingMessage } from 'node:http';
import { FREE_BODY_BYTES, FREE_BODY_PIECES, PIECE_BYTES } from '../limits/body-costs.ts';

/** Pieces count, too. */
const MAX_BYTES = 8 * 1024 * 1024;
const FREE_BYTES = FREE_BODY_BYTES + FREE_BODY_PIECES * PIECE_BYTES;

export class DroppedBody {
  readonly #request: IncomingMessage;
  readonly #charge: (bytes: number) => void;
  #cost = 0;
  #count: ((piece: Buffer) => void) | undefined;

  constructor(request: IncomingMessage, charge: (bytes: number) => void) {
    this.#request = request;
    this.#charge = charge;
  }

  /** Reads and drops from now on, until `stop()`. A second call replaces `onTooMuch`. */
  drop(onTooMuch: () => void): void {
    this.stop();
    this.#count = (piece) => {
      const cost = piece.length + PIECE_BYTES;
      this.#cost += cost;
      if (this.#cost > FREE_BYTES) this.#charge(cost);
      if (this.#cost > MAX_BYTES) onTooMuch();
    };
    this.#request.on('data', this.#count);
    // The reader of a body that it refuses has paused it.
    this.#request.resume();
  }

  stop(): void {
    if (this.#count !== undefined) this.#request.off('data', this.#count);
    this.#count = undefined;
  }
}
