/**
 * DNS over TCP: each message is preceded by its length in two bytes (RFC 1035 section 4.2.2). Pure;
 * used by the name server and by the resolver.
 */
const LENGTH_BYTES = 2;

/** Assembles messages from pieces. Holds less than one message of `maxBytes`. */
export class FrameReader {
  readonly #maxBytes: number;
  #pending: Buffer = Buffer.alloc(0);

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Returns the messages that `chunk` completes; undefined when one is longer than allowed, after
   * which nothing more can be read.
   */
  push(chunk: Buffer): Buffer[] | undefined {
    const messages: Buffer[] = [];
    let rest = this.#pending.length > 0 ? Buffer.concat([this.#pending, chunk]) : chunk;
    while (rest.length >= LENGTH_BYTES) {
      const length = rest.readUInt16BE(0);
      if (length > this.#maxBytes) return undefined;
      if (rest.length < LENGTH_BYTES + length) break;
      messages.push(rest.subarray(LENGTH_BYTES, LENGTH_BYTES + length));
      rest = rest.subarray(LENGTH_BYTES + length);
    }
    this.#pending = Buffer.from(rest);
    return messages;
  }
}

export function frame(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(LENGTH_BYTES + message.length);
  framed.writeUInt16BE(message.length, 0);
  message.copy(framed, LENGTH_BYTES);
  return framed;
}
