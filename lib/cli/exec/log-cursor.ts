/** How far a log has been received, so that another stream can continue it. Pure. */
import type { LogPlace, LogResume } from '../../protocol/streams/stream.ts';

export class LogCursor {
  #position: LogPlace | undefined;
  #bytes = { stdout: 0, stderr: 0 };

  reached(position: LogPlace): void {
    this.#position = position;
    this.#bytes = { stdout: 0, stderr: 0 };
  }

  received(channel: 'stdout' | 'stderr', bytes: number): void {
    this.#bytes[channel] += bytes;
  }

  /** Undefined: nothing has arrived from which a stream could continue. */
  get resume(): LogResume | undefined {
    return this.#position && { position: this.#position, ...this.#bytes };
  }
}
