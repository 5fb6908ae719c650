/**
 * Counts the WebSocket frames that begin in a stream of bytes (RFC 6455, section 5.2). `ws` reports
 * messages, pings and pongs. It does not report the fragments of a message, which may be empty and
 * of any number. Pure, and allocates nothing: it runs on every read of every connection.
 */
export class FrameCounter {
  /** Bytes of the current frame, including its mask, that have not arrived yet. */
  #left = 0;
  /** The meaning of the next byte when `#left` is 0. */
  #next: typeof FIRST | typeof LENGTH | typeof EXTENDED = FIRST;
  #maskBytes = 0;
  /** The extended length as read so far, and the number of its bytes that have not arrived yet. */
  #length = 0;
  #lengthLeft = 0;

  /** Counts the frames that begin in `chunk`, which continues the bytes of the previous calls. */
  count(chunk: Uint8Array): number {
    let frames = 0;
    for (let at = 0; at < chunk.length; ) {
      if (this.#left > 0) {
        const skipped = Math.min(this.#left, chunk.length - at);
        this.#left -= skipped;
        at += skipped;
        continue;
      }
      const byte = chunk[at] ?? 0;
      at += 1;
      if (this.#next === FIRST) {
        frames += 1;
        this.#next = LENGTH;
      } else if (this.#next === LENGTH) this.#readLength(byte);
      else this.#readExtended(byte);
    }
    return frames;
  }

  #readLength(byte: number): void {
    this.#maskBytes = byte & 0x80 ? 4 : 0;
    const short = byte & 0x7f;
    if (short < 126) return this.#begin(short);
    this.#lengthLeft = short === 126 ? 2 : 8;
    this.#length = 0;
    this.#next = EXTENDED;
  }

  #readExtended(byte: number): void {
    this.#length = this.#length * 256 + byte;
    this.#lengthLeft -= 1;
    if (this.#lengthLeft === 0) this.#begin(this.#length);
  }

  #begin(length: number): void {
    this.#left = length + this.#maskBytes;
    this.#next = FIRST;
  }
}

const FIRST = 0;
const LENGTH = 1;
const EXTENDED = 2;
