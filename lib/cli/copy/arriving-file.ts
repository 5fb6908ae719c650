/** Takes what SEND_FILE writes: a line with the mode and the bytes, and then the file. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { Writable } from 'node:stream';
import { RefusedError } from '../terminal/command-errors.ts';

const MAX_HEAD_BYTES = 100;

export class ArrivingFile extends Writable {
  readonly #place: string;
  #head = Buffer.alloc(0);
  #file: FileHandle | undefined;
  #expected = 0;
  #written = 0;

  /** `place`: where the file is created. */
  constructor(place: string) {
    super();
    this.#place = place;
  }

  override _write(piece: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#take(piece).then(() => done(), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#complete().then(() => done(), done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    (this.#file?.close() ?? Promise.resolve()).then(
      () => done(error),
      (failed: Error) => done(error ?? failed),
    );
    this.#file = undefined;
  }

  async #take(piece: Buffer): Promise<void> {
    if (this.#file !== undefined) return this.#append(this.#file, piece);
    this.#head = Buffer.concat([this.#head, piece]);
    const end = this.#head.indexOf('\n');
    if (end < 0 && this.#head.length <= MAX_HEAD_BYTES) return;
    const [, mode, bytes] = /^([0-7]{1,4}) (\d{1,15})$/.exec(this.#head.subarray(0, Math.max(end, 0)).toString()) ?? [];
    if (mode === undefined)
      throw new RefusedError('nothing was copied: the server has sent something other than a file');
    this.#expected = Number(bytes);
    const { O_CREAT, O_EXCL, O_WRONLY } = constants;
    this.#file = await open(this.#place, O_CREAT | O_EXCL | O_WRONLY, 0o600);
    await this.#file.chmod(Number.parseInt(mode, 8) & 0o777);
    await this.#append(this.#file, this.#head.subarray(end + 1));
  }

  async #append(file: FileHandle, piece: Buffer): Promise<void> {
    this.#written += piece.length;
    if (this.#written > this.#expected)
      throw new RefusedError('nothing was copied: the server has sent more than the file');
    await file.writeFile(piece);
  }

  async #complete(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
    if (file === undefined || this.#written !== this.#expected)
      throw new RefusedError('nothing was copied: only a part of the file arrived');
  }
}
