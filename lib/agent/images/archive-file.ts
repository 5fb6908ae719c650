/**
 * The file in which the archive of an image arrives: hashed and limited in size as it is written.
 * After a broken transfer it can be continued, also by the next agent process.
 */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { InvalidImageError, NoImageSpaceError } from './image-errors.ts';

export interface Arrived {
  digest: string;
  bytes: number;
}

/** A transfer that brings no byte for so long is given up: it holds one of the few loads. */
export const STALLED_MS = 60_000;

export interface ArchiveLimits {
  maxBytes: number;
  /**
   * Called with the bytes that it will have at least, before they are written; throws to refuse
   * them.
   */
  onBytes(bytes: number): void;
}

export class ArchiveFile {
  readonly #file: FileHandle;
  readonly #path: string;
  readonly #limits: ArchiveLimits;
  #hash: Hash = createHash('sha256');
  #bytes = 0;

  private constructor(file: FileHandle, path: string, limits: ArchiveLimits) {
    this.#file = file;
    this.#path = path;
    this.#limits = limits;
  }

  /** Keeps what an earlier attempt wrote, and reads it again to compute the digest. */
  static async open(path: string, limits: ArchiveLimits): Promise<ArchiveFile> {
    const file = await open(path, 'a+', 0o600);
    const opened = new ArchiveFile(file, path, limits);
    try {
      await opened.#readAgain();
    } catch (error) {
      await file.close();
      throw error;
    }
    return opened;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /**
   * @throws InvalidImageError if `bytes` is more than allowed, NoImageSpaceError if other loads use
   * the space
   */
  expect(bytes: number): void {
    const { maxBytes, onBytes } = this.#limits;
    if (bytes > maxBytes) throw new InvalidImageError(`its archive has more than ${maxBytes} bytes, as many as it may`);
    onBytes(bytes);
  }

  /** @throws InvalidImageError if it becomes too large, NoImageSpaceError */
  async append(piece: Buffer): Promise<void> {
    this.expect(this.#bytes + piece.length);
    await this.#file.appendFile(piece).catch((error: unknown) => {
      throw toSpaceError(error) ?? error;
    });
    this.#hash.update(piece);
    this.#bytes += piece.length;
  }

  async restart(): Promise<void> {
    await this.#file.truncate(0);
    this.#hash = createHash('sha256');
    this.#bytes = 0;
  }

  /** Everything is on disk. @throws InvalidImageError if the digest is another one */
  async complete(expected: string | undefined): Promise<Arrived> {
    await this.#file.datasync();
    const digest = `sha256:${this.#hash.copy().digest('hex')}`;
    if (expected === undefined || digest === expected) return { digest, bytes: this.#bytes };
    throw new InvalidImageError(`its archive has the digest ${digest}, not ${expected}`);
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  async #readAgain(): Promise<void> {
    for await (const piece of createReadStream(this.#path) as AsyncIterable<Buffer>) {
      this.#hash.update(piece);
      this.#bytes += piece.length;
    }
  }
}

/** Undefined unless the disk or a quota is full, as the error or a cause of it says. */
export function toSpaceError(error: unknown): NoImageSpaceError | undefined {
  if (!(error instanceof Error)) return undefined;
  if (!('code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT'))) return toSpaceError(error.cause);
  return new NoImageSpaceError('The disk has no room for this image; free some space, or delete images', error);
}
