/**
 * A log file of limited size: when it would exceed `maxBytes` it becomes `FILE.1`, the former `.1`
 * becomes `.2`, and so on; `keep` old files are kept. The supervisor writes its children's output
 * to it. When the file cannot be written (disk full), output is dropped and the child continues;
 * `dropped` counts the chunks.
 */
import { closeSync, fstatSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';

export interface RotatingLogOptions {
  maxBytes?: number;
  keep?: number;
}

export class RotatingLog {
  readonly file: string;
  dropped = 0;
  readonly #maxBytes: number;
  readonly #keep: number;
  #descriptor: number | undefined;
  #size = 0;

  constructor(file: string, { maxBytes = 10 * 1024 * 1024, keep = 5 }: RotatingLogOptions = {}) {
    this.file = file;
    this.#maxBytes = maxBytes;
    this.#keep = keep;
  }

  write(chunk: Buffer): void {
    try {
      this.#append(chunk);
    } catch {
      this.dropped += 1;
    }
  }

  close(): void {
    if (this.#descriptor !== undefined) closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }

  #append(chunk: Buffer): void {
    const descriptor = this.#open();
    const room = this.#maxBytes - this.#size;
    if (chunk.length <= room || this.#size === 0) {
      this.#put(descriptor, chunk);
      return;
    }
    // Splits at the end of a line if possible, so that each file can be read alone.
    const cut = room > 0 ? chunk.lastIndexOf(0x0a, room - 1) + 1 : 0;
    if (cut > 0) this.#put(descriptor, chunk.subarray(0, cut));
    this.#rotate();
    this.#put(this.#open(), chunk.subarray(cut));
  }

  #put(descriptor: number, chunk: Buffer): void {
    this.#size += writeSync(descriptor, chunk);
  }

  #open(): number {
    if (this.#descriptor === undefined) {
      this.#descriptor = openSync(this.file, 'a', 0o640);
      this.#size = fstatSync(this.#descriptor).size;
    }
    return this.#descriptor;
  }

  #rotate(): void {
    this.close();
    rmSync(`${this.file}.${this.#keep}`, { force: true });
    for (let age = this.#keep - 1; age >= 1; age--) moveIfThere(`${this.file}.${age}`, `${this.file}.${age + 1}`);
    moveIfThere(this.file, `${this.file}.1`);
  }
}

function moveIfThere(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
