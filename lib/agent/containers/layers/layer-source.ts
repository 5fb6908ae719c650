/**
 * The bytes of a layer archive as they arrive: counted, hashed, and decompressed if they are gzip.
 * Both counts have the same limit: unpacked bytes because the disk is finite, and received bytes
 * because gzip members can be empty. Their ratio is limited too, because of compression bombs.
 */
import { createHash } from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { LayerError } from './layer-error.ts';
import type { LayerLimits } from './layer-tree.ts';

const GZIP = [0x1f, 0x8b];
const GUNZIP_CHUNK_BYTES = 128 * 1024;
/**
 * Unpacked bytes for each received one. Measured with gzip: programs 2, sources 4, logs 12, one
 * line again and again 294, and zeros 1,029, which is the most that gzip can.
 */
const MAX_RATIO = 200;
/** Unpacked bytes that have any ratio: a real layer may begin with a file of zeros. */
const ANY_RATIO_BYTES = 64 * 1024 * 1024;

export class LayerSource {
  readonly #stream: Readable;
  readonly #limits: Pick<LayerLimits, 'maxBytes' | 'onBytes'>;
  readonly #hash = createHash('sha256');
  #received = 0;
  #unpacked = 0;

  constructor(stream: Readable, limits: Pick<LayerLimits, 'maxBytes' | 'onBytes'>) {
    this.#stream = stream;
    this.#limits = limits;
  }

  get unpackedBytes(): number {
    return this.#unpacked;
  }

  /** The digest of the received stream; call it when `bytes` has ended. */
  digest(): string {
    return `sha256:${this.#hash.digest('hex')}`;
  }

  /** @throws LayerError, or the error of the stream */
  async *bytes(): AsyncGenerator<Buffer, void> {
    const received = this.#receive();
    const first = await atLeast(received, GZIP.length);
    const isGzip = GZIP.every((byte, index) => first[index] === byte);
    const all = after(first, received);
    for await (const chunk of isGzip ? this.#unzip(all) : all) {
      this.#unpacked = this.#count(this.#unpacked, chunk);
      if (isGzip) this.#checkRatio();
      this.#limits.onBytes?.(this.#unpacked);
      yield chunk;
    }
  }

  async *#receive(): AsyncGenerator<Buffer, void> {
    for await (const chunk of this.#stream as AsyncIterable<Buffer>) {
      this.#received = this.#count(this.#received, chunk);
      this.#hash.update(chunk);
      yield chunk;
    }
  }

  async *#unzip(received: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
    const gunzip = createGunzip({ chunkSize: GUNZIP_CHUNK_BYTES });
    // The iteration below throws what ends the pipeline.
    pipeline(Readable.from(received), gunzip, () => undefined);
    try {
      yield* gunzip as AsyncIterable<Buffer>;
    } catch (error) {
      if (isZlibError(error)) throw new LayerError(`it cannot be decompressed: ${error.message}`, error);
      throw error;
    }
    // Data that is neither gzip nor padding makes zlib stop early without an error.
    if (gunzip.bytesWritten < this.#received) throw new LayerError('data follows the end of its compressed data');
  }

  #checkRatio(): void {
    if (this.#unpacked <= ANY_RATIO_BYTES + MAX_RATIO * this.#received) return;
    throw new LayerError(
      `it becomes more than ${MAX_RATIO} times as large when it is decompressed, as compression bombs do`,
    );
  }

  #count(before: number, chunk: Buffer): number {
    const { maxBytes } = this.#limits;
    const bytes = before + chunk.length;
    if (bytes <= maxBytes) return bytes;
    throw new LayerError(`it has more than ${maxBytes} bytes, the maximum here`);
  }
}

/** The first chunk, or several as one, with that many bytes unless the stream is shorter. */
async function atLeast(chunks: AsyncIterator<Buffer>, bytes: number): Promise<Buffer> {
  let joined: Buffer = Buffer.alloc(0);
  while (joined.length < bytes) {
    const { value, done } = await chunks.next();
    if (done === true) break;
    joined = joined.length === 0 ? value : Buffer.concat([joined, value]);
  }
  return joined;
}

async function* after(first: Buffer, rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  if (first.length > 0) yield first;
  yield* rest;
}

const isZlibError = (error: unknown): error is Error =>
  error instanceof Error && 'code' in error && String(error.code).startsWith('Z_');
