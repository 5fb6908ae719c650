/**
 * A command's output, collected twice. `KeptOutput` holds what the result will contain: the first
 * and the last half of a limit. `OutputStreamer` sends pieces while the command runs, best effort
 * and at a bounded rate. Both cut between characters.
 */

import type { Clock, Timer } from '../../platform/time/clock.ts';
import { MAX_OUTPUT_BYTES, MAX_OUTPUT_CHUNK } from '../../protocol/limits.ts';
import type { OutputChannel } from '../../protocol/output-streams.ts';
import { completeLength, continuationLength } from './utf8.ts';

const cutMark = (bytes: number): string => `\n[… ${bytes} bytes cut …]\n`;

export class KeptOutput {
  readonly #half: number;
  #head: Buffer[] = [];
  #headBytes = 0;
  #tail: Buffer[] = [];
  #tailBytes = 0;
  #total = 0;

  constructor(maxBytes: number = MAX_OUTPUT_BYTES) {
    this.#half = Math.floor(maxBytes / 2);
  }

  add(chunk: Buffer): void {
    this.#total += chunk.length;
    const intoHead = Math.min(chunk.length, this.#half - this.#headBytes);
    if (intoHead > 0) {
      this.#head.push(chunk.subarray(0, intoHead));
      this.#headBytes += intoHead;
    }
    if (intoHead < chunk.length) this.#addTail(chunk.subarray(intoHead));
  }

  text(): string {
    const head = Buffer.concat(this.#head);
    const tail = Buffer.concat(this.#tail);
    const last = tail.subarray(Math.max(0, tail.length - this.#half));
    if (head.length + last.length === this.#total) return Buffer.concat([head, last]).toString('utf8');
    const first = head.subarray(0, completeLength(head));
    const rest = last.subarray(continuationLength(last));
    return first.toString('utf8') + cutMark(this.#total - first.length - rest.length) + rest.toString('utf8');
  }

  /**
   * Copies, because a few kept bytes would hold a whole read buffer. Joins, because many small
   * writes would make a long list.
   */
  #addTail(chunk: Buffer): void {
    this.#tail.push(Buffer.from(chunk));
    this.#tailBytes += chunk.length;
    if (this.#tailBytes <= 2 * this.#half && this.#tail.length < 4096) return;
    const joined = Buffer.concat(this.#tail);
    this.#tail = [Buffer.from(joined.subarray(Math.max(0, joined.length - this.#half)))];
    this.#tailBytes = this.#tail[0]?.length ?? 0;
  }
}

/** Most bytes of a piece; its text then fits an output event whatever the bytes are. */
const PIECE_BYTES = MAX_OUTPUT_CHUNK - 4;
export const FLUSH_MS = 100;
/**
 * Limit for one stream between two flushes. More is not shown live (the offsets show the gap),
 * unless the command waits.
 */
const PENDING_BYTES = 4 * PIECE_BYTES;

export class OutputStreamer {
  readonly #clock: Clock;
  readonly #emit: (stream: OutputChannel, offset: number, text: string) => void;
  readonly #streams = { stdout: newStream(), stderr: newStream() };
  readonly #isPaced: boolean;
  #timer: Timer | undefined;

  /**
   * `isPaced`: the caller waits for the next flush when `add` returns true, so no output is left
   * out.
   */
  constructor(
    clock: Clock,
    emit: (stream: OutputChannel, offset: number, text: string) => void,
    { isPaced = false }: { isPaced?: boolean } = {},
  ) {
    this.#clock = clock;
    this.#emit = emit;
    this.#isPaced = isPaced;
  }

  /** Returns true when the stream is full until the next flush. */
  add(name: OutputChannel, chunk: Buffer): boolean {
    const stream = this.#streams[name];
    if (!stream.gap) {
      if (stream.pending.length === 0) stream.offset = stream.total;
      const room = this.#isPaced ? chunk.length : PENDING_BYTES - stream.bytes;
      const taken = Buffer.from(chunk.subarray(0, room));
      stream.pending.push(taken);
      stream.bytes += taken.length;
      stream.gap = taken.length < chunk.length;
    }
    stream.total += chunk.length;
    this.#timer ??= this.#clock.after(FLUSH_MS, () => this.#flush(false));
    return stream.bytes >= PENDING_BYTES;
  }

  /** Sends what is left. */
  end(): void {
    this.#flush(true);
  }

  #flush(last: boolean): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#flushStream('stdout', last);
    this.#flushStream('stderr', last);
  }

  #flushStream(name: OutputChannel, last: boolean): void {
    const stream = this.#streams[name];
    let rest = Buffer.concat(stream.pending);
    while (rest.length > 0) {
      const piece = rest.subarray(0, PIECE_BYTES);
      const whole = rest.length > PIECE_BYTES || !(last || stream.gap) ? completeLength(piece) : piece.length;
      if (whole === 0) break;
      this.#emit(name, stream.offset, piece.toString('utf8', 0, whole));
      stream.offset += whole;
      rest = rest.subarray(whole);
    }
    stream.pending = rest.length > 0 ? [rest] : [];
    stream.bytes = rest.length;
    stream.gap = false;
  }
}

function newStream() {
  return { pending: [] as Buffer[], bytes: 0, offset: 0, total: 0, gap: false };
}
