/**
 * Parses what the monitor writes, `TIME stdout|stderr F|P TEXT` in lines. P is a part of a line of
 * the container, which the monitor splits at 8 KiB and where a write ends; F is the rest of one, or
 * all of it. Pure; keeps a bounded part of the input, whatever its lines are like.
 */
import { completeLength } from '../../output/utf8.ts';

export interface LogEntry {
  /** Wall clock of the machine when the monitor read it, in milliseconds. */
  at: number;
  stream: 'stdout' | 'stderr';
  /** The text of the line without its newline. */
  text: string;
  /** The next entry of this stream continues the line. */
  isPartial: boolean;
}

type Head = Omit<LogEntry, 'text'>;

/** A longer line is returned in parts. */
const MAX_LINE_BYTES = 64 * 1024;
const MAX_HEAD_BYTES = 64;
const NEWLINE = 0x0a;
const NOTHING = Buffer.alloc(0);

/** The beginning of a line and its length; undefined if the monitor has not written it. */
export function parseHead(line: Buffer): (Head & { length: number }) | undefined {
  const [all, time = '', stream, tag] =
    /^(\S+) (stdout|stderr) ([FP]) /.exec(line.toString('latin1', 0, MAX_HEAD_BYTES)) ?? [];
  const at = Date.parse(time);
  if (all === undefined || Number.isNaN(at)) return undefined;
  return { at, stream: stream as LogEntry['stream'], isPartial: tag === 'P', length: all.length };
}

export class LogParser {
  #rest: Buffer = NOTHING;
  /** The head of a line whose beginning was already returned. */
  #begun: Head | undefined;
  #lastAt = 0;
  /** Bytes of a character that the next entry of the stream completes. */
  readonly #cut = { stdout: NOTHING, stderr: NOTHING } as Record<LogEntry['stream'], Buffer>;

  /**
   * Bytes of the file that the entries so far do not have. Undefined within a line or a character
   * that was cut.
   */
  get pendingBytes(): number | undefined {
    const isCut = this.#begun !== undefined || this.#cut.stdout.length > 0 || this.#cut.stderr.length > 0;
    return isCut ? undefined : this.#rest.length;
  }

  push(chunk: Buffer): LogEntry[] {
    return [...this.#push(chunk)];
  }

  /** The file has ended, within a line if the machine crashed. */
  end(): LogEntry[] {
    const rest = this.#rest;
    this.#rest = NOTHING;
    return rest.length === 0 ? [] : [...this.#line(rest, true)];
  }

  *#push(chunk: Buffer): Generator<LogEntry> {
    let bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE)) {
      yield* this.#line(bytes.subarray(0, end), true);
      bytes = bytes.subarray(end + 1);
    }
    while (bytes.length > MAX_LINE_BYTES) {
      yield* this.#line(bytes.subarray(0, MAX_LINE_BYTES), false);
      bytes = bytes.subarray(MAX_LINE_BYTES);
    }
    this.#rest = Buffer.from(bytes);
  }

  *#line(line: Buffer, isWhole: boolean): Generator<LogEntry> {
    const found = this.#begun === undefined ? parseHead(line) : undefined;
    const head = this.#begun ?? found ?? { at: this.#lastAt, stream: 'stdout', isPartial: false };
    this.#begun = isWhole ? undefined : head;
    this.#lastAt = head.at;
    const isPartial = head.isPartial || !isWhole;
    const text = this.#decode(head.stream, line.subarray(found?.length ?? 0), isPartial);
    if (text !== '' || !isPartial) yield { at: head.at, stream: head.stream, text, isPartial };
  }

  #decode(stream: LogEntry['stream'], part: Buffer, isPartial: boolean): string {
    const bytes = this.#cut[stream].length === 0 ? part : Buffer.concat([this.#cut[stream], part]);
    const length = isPartial ? completeLength(bytes) : bytes.length;
    this.#cut[stream] = length === bytes.length ? NOTHING : Buffer.from(bytes.subarray(length));
    return bytes.toString('utf8', 0, length);
  }
}
