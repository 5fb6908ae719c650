/** The escape of a terminal, as ssh has it: ~. at the beginning of a line leaves. */
import { Transform, type TransformCallback } from 'node:stream';

/** Where the next byte of the input is. */
type EscapePlace = 'line-start' | 'within-line' | 'after-tilde' | 'in-report';

const ESC = 0x1b;
const TILDE = 0x7e;
const DOT = 0x2e;
/** Enter sends a carriage return in a raw terminal. */
const LINE_ENDS: readonly number[] = [0x0a, 0x0d];
/**
 * A terminal tells where its cursor is, ESC [ ROW ; COLUMN R, when a shell has asked before its
 * prompt.
 */
const IN_REPORT = /[[0-9;]/;
const REPORT_END = 0x52;

/** Passes the input on, without escapes; calls `leave` at the one that leaves. */
export class EscapeInput extends Transform {
  readonly #leave: () => void;
  #place: EscapePlace = 'line-start';

  constructor(leave: () => void) {
    super();
    this.#leave = leave;
  }

  override _transform(bytes: Buffer, _encoding: string, done: TransformCallback): void {
    const { place, passed, isLeft } = readEscapes(this.#place, bytes);
    this.#place = place;
    if (passed.length > 0) this.push(passed);
    if (isLeft) this.#leave();
    done();
  }

  override _flush(done: TransformCallback): void {
    if (this.#place === 'after-tilde') this.push(Buffer.from([TILDE]));
    done();
  }
}

/**
 * A ~ at the beginning of a line is kept back until the next byte says what it means. A report is
 * not typed.
 */
export function readEscapes(before: EscapePlace, bytes: Buffer) {
  let place = before;
  let isLeft = false;
  const passed: number[] = [];
  for (const byte of bytes) {
    if (place === 'line-start' && byte === TILDE) {
      place = 'after-tilde';
      continue;
    }
    if (place === 'after-tilde' && byte === DOT) {
      isLeft = true;
      break;
    }
    if (place === 'after-tilde' && byte !== TILDE) passed.push(TILDE);
    passed.push(byte);
    place = placeAfter(place, byte);
  }
  return { place, passed: Buffer.from(passed), isLeft };
}

function placeAfter(place: EscapePlace, byte: number): EscapePlace {
  if (LINE_ENDS.includes(byte)) return 'line-start';
  if (place === 'line-start' && byte === ESC) return 'in-report';
  if (place !== 'in-report') return 'within-line';
  if (byte === REPORT_END) return 'line-start';
  return IN_REPORT.test(String.fromCharCode(byte)) ? 'in-report' : 'within-line';
}
