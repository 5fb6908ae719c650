/**
 * Assembles the output of a command from live pieces and from what its result kept: each stream in
 * order, without duplicates. Pure; used by live-output.ts, and by reports.ts for JSON.
 *
 * Live pieces may be missing (an agent limits its live output) or come twice (a report whose commit
 * was not answered is stored again); their offsets show this. After a gap, pieces are held back,
 * because the result may contain the missing part. They are returned, and the gap is reported, when
 * the result can no longer contain that part, at the end, or when `goOn` is called. `fillGaps` then
 * returns what the result has of the reported gaps.
 */
import { createHash } from 'node:crypto';
import { MAX_OUTPUT_BYTES } from '../../protocol/limits.ts';
import { OUTPUT_STREAMS, type OutputChannel } from '../../protocol/output-streams.ts';

/**
 * Text, or a number of missing bytes at that offset; null when it is unknown whether bytes are
 * missing.
 */
export type OutputPiece =
  | { stream: OutputChannel; offset: number; text: string }
  | { stream: OutputChannel; offset: number; cut: number | null };

export class OutputSequence {
  #streams = newStreams();
  #attempt = 0;
  #hasLostAttempt = false;

  /** Takes the data of an `output` event. A new attempt starts from an empty state. */
  write(data: Readonly<Record<string, unknown>>, attempt: number): OutputPiece[] {
    const { stream, offset, text } = data;
    const before = attempt === this.#attempt ? [] : this.#beginAgain(attempt);
    // An event that reports a cut has no text; the next offset shows the same cut.
    if ((stream !== 'stdout' && stream !== 'stderr') || typeof text !== 'string') return before;
    return [...before, ...this.#streams[stream].push(typeof offset === 'number' ? offset : undefined, text)];
  }

  isHolding(stream: OutputChannel): boolean {
    return this.#streams[stream].isHolding;
  }

  /** Returns the pieces held back, after their gap. */
  goOn(stream: OutputChannel): OutputPiece[] {
    return this.#streams[stream].goOn();
  }

  /** Returns the rest. `result` is the task's result; undefined when it is not known. */
  end(result: unknown): OutputPiece[] {
    const texts = (result ?? {}) as Readonly<Record<string, unknown>>;
    return OUTPUT_STREAMS.flatMap((name) => {
      const all = texts[name];
      return this.#streams[name].end(typeof all === 'string' ? all : undefined);
    });
  }

  /** Returns the parts of the reported gaps that the result contains, and whether these are all. */
  fillGaps(result: unknown): { pieces: OutputPiece[]; isWhole: boolean } {
    const texts = (result ?? {}) as Readonly<Record<string, unknown>>;
    const filled = OUTPUT_STREAMS.map((name) => {
      const all = texts[name];
      return this.#streams[name].fillGaps(typeof all === 'string' ? all : undefined);
    });
    const isWhole = !this.#hasLostAttempt && filled.every((one) => one.isWhole);
    return { pieces: filled.flatMap(({ pieces }) => pieces), isWhole };
  }

  #beginAgain(attempt: number): OutputPiece[] {
    const rest = this.end(undefined);
    this.#hasLostAttempt ||= OUTPUT_STREAMS.some((name) => this.#streams[name].hasGaps);
    this.#streams = newStreams();
    this.#attempt = attempt;
    return rest;
  }
}

const newStreams = () => ({ stdout: new StreamSequence('stdout'), stderr: new StreamSequence('stderr') });

/**
 * The number of bytes of a stream that became a text. It is a range when some bytes were not UTF-8.
 */
interface Range {
  least: number;
  most: number;
}

interface Source {
  offset: number;
  text: string;
}

/** A gap beyond this number is not filled. */
const MAX_GAPS = 1000;

/** Stands for one to three bytes that are not UTF-8. */
const REPLACEMENT = '\ufffd';

class StreamSequence {
  readonly #name: OutputChannel;
  /** The offset in the stream at which the next text begins. */
  #at: Range = { least: 0, most: 0 };
  /**
   * A replacement at the end of the last text; before a gap it may be the beginning of a character.
   */
  #incompleteCharacter = '';
  #held: Source[] = [];
  #isWhole = true;
  #gaps: { offset: number; end: number }[] = [];
  #hasUnknownGap = false;
  readonly #given = createHash('sha256');
  #characters = 0;

  constructor(name: OutputChannel) {
    this.#name = name;
  }

  get isHolding(): boolean {
    return this.#held.length > 0;
  }

  push(given: number | undefined, text: string): OutputPiece[] {
    const offset = given ?? this.#reach.most;
    if (this.isHolding || offset > this.#reach.most) return this.#hold({ offset, text });
    return this.#take({ offset, text });
  }

  goOn(): OutputPiece[] {
    const held = this.#held;
    const [first] = held;
    if (first === undefined) return [];
    this.#held = [];
    return [...this.#skipTo(first.offset), ...held.flatMap(({ offset, text }) => this.push(offset, text))];
  }

  end(all: string | undefined): OutputPiece[] {
    if (all === undefined) return this.#withoutResult();
    const { head, cut, tail } = partsOf(all);
    const mayBeKnown = this.#isWhole && this.#characters <= head.length;
    const isKnown = mayBeKnown && this.#isBeginningOf(head);
    const isOther = !isKnown && (mayBeKnown || (this.#isWhole && cut === 0));
    const rest = isKnown ? this.#giveHead(head) : [];
    if (isKnown && cut === 0) return rest;
    const isCounted = [lengthOf(head), lengthOf(tail), this.#at].every(isExact);
    const last = { offset: lengthOf(head).most + cut, text: tail };
    if (isCounted && !isOther) return [...rest, ...this.#merge([{ offset: 0, text: head }, last])];
    if (isKnown) return [...rest, ...this.#skipTo(last.offset), ...this.#give(tail, last.offset)];
    const total = lengthOf(head).least + cut + lengthOf(tail).least;
    const shown = this.#withoutResult();
    return !isOther && this.#at.most >= total ? shown : [...shown, this.#missing(null)];
  }

  get hasGaps(): boolean {
    return this.#gaps.length > 0 || this.#hasUnknownGap;
  }

  fillGaps(all: string | undefined): { pieces: OutputPiece[]; isWhole: boolean } {
    const { head, cut, tail } = partsOf(all ?? '');
    // Where bytes were not UTF-8, offsets in the result are not known.
    const isCounted = [lengthOf(head), lengthOf(tail)].every(isExact);
    const kept = isCounted ? [head, tail].map((text) => Buffer.from(text)) : [];
    let filled = 0;
    const pieces = this.#gaps.flatMap(({ offset, end }) =>
      kept.flatMap((bytes, part): OutputPiece[] => {
        const start = part === 0 ? 0 : (kept[0]?.length ?? 0) + cut;
        const from = Math.max(offset, start);
        const piece = bytes.subarray(from - start, Math.max(from, end) - start);
        filled += piece.length;
        return piece.length === 0 ? [] : [{ stream: this.#name, offset: from, text: piece.toString() }];
      }),
    );
    const missing = this.#gaps.reduce((sum, { offset, end }) => sum + end - offset, 0);
    return { pieces, isWhole: filled === missing && !this.#hasUnknownGap };
  }

  /** The offset up to which everything has arrived. */
  get #reach(): Range {
    const { least, most } = this.#at;
    return this.#incompleteCharacter === '' ? this.#at : { least: least + 1, most: most + 3 };
  }

  #take({ offset, text }: Source): OutputPiece[] {
    const { least, most } = this.#reach;
    const fresh = offset >= least ? text : withoutFirst(text, most - offset);
    if (fresh === '') return [];
    const isNext = fresh === text && this.#incompleteCharacter === '';
    const all = this.#incompleteCharacter + fresh;
    this.#incompleteCharacter = all.endsWith(REPLACEMENT) ? REPLACEMENT : '';
    const pieces = this.#give(
      all.slice(0, all.length - this.#incompleteCharacter.length),
      isNext ? offset : this.#at.least,
    );
    const length = lengthOf(text);
    const doubt = this.#incompleteCharacter === '' ? { least: 0, most: 0 } : { least: 1, most: 3 };
    this.#at = { least: offset + length.least - doubt.least, most: offset + length.most - doubt.most };
    return pieces;
  }

  /**
   * Holds a limited amount: a result keeps the first and the last half of MAX_OUTPUT_BYTES, so an
   * older gap cannot be filled any more.
   */
  #hold(source: Source): OutputPiece[] {
    this.#held.push(source);
    const end = endOf(source);
    const isBeyondResult = end > MAX_OUTPUT_BYTES && end - this.#at.most > MAX_OUTPUT_BYTES / 2;
    return isBeyondResult ? this.goOn() : [];
  }

  #skipTo(offset: number): OutputPiece[] {
    const pieces = [...this.#flushIncomplete(), this.#missing(offset - this.#at.most)];
    if (this.#gaps.length < MAX_GAPS) this.#gaps.push({ offset: this.#at.most, end: offset });
    else this.#hasUnknownGap = true;
    this.#at = { least: offset, most: offset };
    this.#isWhole = false;
    return pieces;
  }

  #withoutResult(): OutputPiece[] {
    const pieces: OutputPiece[] = [];
    while (this.isHolding) pieces.push(...this.goOn());
    return [...pieces, ...this.#flushIncomplete()];
  }

  #flushIncomplete(): OutputPiece[] {
    const pieces = this.#give(this.#incompleteCharacter, this.#at.least);
    this.#at = this.#reach;
    this.#incompleteCharacter = '';
    return pieces;
  }

  #giveHead(head: string): OutputPiece[] {
    this.#incompleteCharacter = '';
    const pieces = this.#give(head.slice(this.#characters), this.#at.least);
    this.#at = lengthOf(head);
    return pieces;
  }

  /** Merges the held pieces with the text that the result kept, in order of offset. */
  #merge(kept: readonly Source[]): OutputPiece[] {
    const pieces: OutputPiece[] = [];
    const held = this.#held;
    this.#held = [];
    this.#incompleteCharacter = '';
    for (let next = 0; ; ) {
      const at = this.#reach.most;
      const source = kept.find((piece) => piece.offset <= at && at < endOf(piece)) ?? held[next];
      if (source !== undefined && endOf(source) <= at) next++;
      else if (source !== undefined && source.offset <= at) pieces.push(...this.#take(source));
      else {
        const starts = [...kept, ...(source === undefined ? [] : [source])].map(({ offset }) => offset);
        const first = Math.min(...starts.filter((offset) => offset > at));
        if (first === Number.POSITIVE_INFINITY) return [...pieces, ...this.#flushIncomplete()];
        pieces.push(...this.#skipTo(first));
      }
    }
  }

  #isBeginningOf(head: string): boolean {
    const same = createHash('sha256').update(head.slice(0, this.#characters));
    return same.digest('hex') === this.#given.copy().digest('hex');
  }

  #give(text: string, offset: number): OutputPiece[] {
    if (text === '') return [];
    this.#given.update(text);
    this.#characters += text.length;
    return [{ stream: this.#name, offset, text }];
  }

  #missing(cut: number | null): OutputPiece {
    this.#hasUnknownGap ||= cut === null;
    return { stream: this.#name, offset: this.#at.most, cut };
  }
}

function lengthOf(text: string): Range {
  const most = Buffer.byteLength(text);
  let replacements = 0;
  for (let at = text.indexOf(REPLACEMENT); at >= 0; at = text.indexOf(REPLACEMENT, at + 1)) replacements++;
  return { least: most - 2 * replacements, most };
}

const sum = (a: Range, b: Range): Range => ({ least: a.least + b.least, most: a.most + b.most });
const difference = (a: Range, b: Range): Range => ({ least: a.least - b.least, most: a.most - b.most });
const isExact = ({ least, most }: Range): boolean => least === most;
const endOf = ({ offset, text }: Source): number => offset + Buffer.byteLength(text);

/** Drops the characters that lie within the first `bytes` bytes. */
function withoutFirst(text: string, bytes: number): string {
  let at = 0;
  let length = 0;
  for (const character of text) {
    length += Buffer.byteLength(character);
    if (length > bytes) break;
    at += character.length;
  }
  return text.slice(at);
}

const MARK = /\n\[… (\d+) bytes cut …\]\n/g;

/** A result that was too long has its first and last half, with a mark in the middle. */
function partsOf(all: string): { head: string; cut: number; tail: string } {
  const total = lengthOf(all);
  let at = 0;
  let first: Range = { least: 0, most: 0 };
  // Checks every possible mark in one pass, because a command may write nothing but marks.
  for (const { 0: mark, 1: cut, index } of all.matchAll(MARK)) {
    first = sum(first, lengthOf(all.slice(at, index)));
    at = index;
    const last = difference(total, sum(first, lengthOf(mark)));
    if (first.least > last.most + 6) break;
    if (last.least <= first.most + 6)
      return { head: all.slice(0, index), cut: Number(cut), tail: all.slice(index + mark.length) };
  }
  return { head: all, cut: 0, tail: '' };
}
