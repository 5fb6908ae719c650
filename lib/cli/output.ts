/**
 * What is shown, and where: results on stdout, remarks on stderr. Knows whether people or programs read. A reader that went
 * away is no error: by default the command ends there, quietly, as `head` expects it.
 */
import { type Clock, settlesWithin } from '../ports/clock.ts';
import { type Column, facts, table } from './table.ts';
import { safeJson, visible, visibleLines } from './visible.ts';

export interface OutputOptions {
  json: boolean;
  quiet: boolean;
  env: NodeJS.ProcessEnv;
  color: boolean;
}

/** Resolves when all that was written has left this process, or nobody reads it any more. */
export async function flushed(): Promise<void> {
  const each = [process.stdout, process.stderr].map(
    (stream) =>
      new Promise<void>((resolve) => {
        if (stream.writableLength === 0 || stream.destroyed) return resolve();
        stream.once('error', () => resolve());
        stream.write('', () => resolve());
      }),
  );
  await Promise.all(each);
}

const SOON_MS = 1000;

/**
 * For whoever asks to end once more: a reader that stands still is not waited for. Not at once, because two signals may be
 * one wish (timeout(1) sends TERM twice).
 */
export async function exitSoon(clock: Clock, code: number): Promise<never> {
  await settlesWithin(clock, SOON_MS, flushed());
  process.exit(code);
}

const COLORS = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 } as const;
export type Color = keyof typeof COLORS;

export class Output {
  readonly json: boolean;
  readonly quiet: boolean;
  readonly #color: boolean;
  /** What to do when nobody reads stdout any more. */
  onReaderGone: () => void = () => process.exit(0);
  #isGone = false;

  constructor({ json, quiet, env, color }: OutputOptions) {
    this.json = json;
    this.quiet = quiet;
    this.#color = color && !env.NO_COLOR && env.TERM !== 'dumb' && process.stdout.isTTY === true;
    process.stdout.on('error', () => {
      if (this.#isGone) return;
      this.#isGone = true;
      this.onReaderGone();
    });
    process.stderr.on('error', () => undefined);
  }

  get isTerminal(): boolean {
    return process.stdout.isTTY === true;
  }

  /** Of the terminal; undefined where there is none. */
  get columns(): number | undefined {
    return this.isTerminal ? process.stdout.columns || 80 : undefined;
  }

  /** As it is; whoever calls has made it safe. */
  raw(text: string | Uint8Array): void {
    if (!this.#isGone) process.stdout.write(text);
  }

  /** Resolves when the reader of stdout has caught up: a stream is not read faster than its output is. */
  async ready(): Promise<void> {
    while (!this.#isGone && process.stdout.writableNeedDrain) {
      await new Promise<void>((resolve) => {
        process.stdout.once('drain', resolve);
        process.stdout.once('error', () => resolve());
      });
    }
  }

  line(text: string): void {
    this.raw(`${visibleLines(text)}\n`);
  }

  /** One JSON document: over several lines for people, in one for programs. */
  document(value: unknown): void {
    this.raw(`${safeJson(value, this.isTerminal ? 2 : undefined)}\n`);
  }

  /** One line of JSON, of a stream. */
  record(value: unknown): void {
    this.raw(`${safeJson(value)}\n`);
  }

  /** A remark, on stderr; not with --quiet. */
  note(text: string): void {
    if (!this.quiet) this.complain(text);
  }

  /** Something that must be known, on stderr. */
  complain(text: string): void {
    process.stderr.write(`cnapi: ${visibleLines(text)}\n`);
  }

  table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): void {
    const [head = '', ...lines] = table(columns, rows, this.columns);
    this.raw(`${this.paint('bold', head)}\n`);
    for (const line of lines) this.line(line);
  }

  facts(pairs: readonly (readonly [string, unknown])[]): void {
    for (const line of facts(pairs)) this.line(line);
  }

  paint(color: Color, text: string): string {
    return this.#color ? `\x1b[${COLORS[color]}m${text}\x1b[0m` : text;
  }

  /** A server's, a task's, an instance's: in its colour. */
  status(text: string): string {
    const color = { running: 'green', complete: 'green', live: 'green', unknown: 'red', failure: 'red' }[text];
    return color === undefined ? visible(text) : this.paint(color as Color, text);
  }
}
