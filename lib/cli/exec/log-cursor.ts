/** How far a log has been received, so that another stream can continue it. Pure. */
import type { LogPlace, LogResume } from '../../protocol/streams/stream.ts';

export class LogCursor {
  #position: LogPlace | undefined;
  #bytes = { stdout: 0, stderr: 0 };
  #arrived = 0;

  /** Counts bytes and places that are new. */
  get arrived(): number {
    return this.#arrived;
  }

  reached(position: LogPlace): void {
    const { number, offset } = this.#position ?? {};
    // A stream that continues first tells where it begins; what was received after that counts on.
    if (position.number === number && position.offset === offset) return;
    this.#arrived += 1;
    this.#position = position;
    this.#bytes = { stdout: 0, stderr: 0 };
  }

  received(channel: 'stdout' | 'stderr', bytes: number): void {
    this.#arrived += bytes;
    this.#bytes[channel] += bytes;
  }

  /** Undefined: nothing has arrived from which a stream could continue. */
  get resume(): LogResume | undefined {
    return this.#position && { position: this.#position, ...this.#bytes };
  }
}
