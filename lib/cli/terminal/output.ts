/**
 * Writes results to stdout and remarks to stderr. Knows whether a person or a program reads. A
 * reader that closes stdout is not an error: by default the command then ends silently, as `head`
 * expects. Any other failed write, as on a full disk, is an error of the command.
 */
import { getSystemErrorMessage } from 'node:util';
import { type Clock, settlesWithin } from '../../platform/time/clock.ts';
import type { OutputChannel } from '../../protocol/output-streams.ts';
import { EXIT } from './command-errors.ts';
import { escapeControlsInLines, safeJson } from './escape-controls.ts';
import { exitCodeOfSignal, onEndingSignal } from './signals.ts';
import type { Streams } from './streams.ts';
import { type Column, nameValueLines, table, truncateToWidth } from './table.ts';

interface OutputOptions {
  json: boolean;
  quiet: boolean;
  env: NodeJS.ProcessEnv;
  color: boolean;
  streams: Pick<Streams, OutputChannel>;
}

/**
 * Resolves when everything written has left this process, or when nobody reads it any more. The
 * listeners have then been told of each failed write.
 */
export async function flushOutput({ stdout, stderr }: OutputOptions['streams'] = process): Promise<void> {
  const each = [stdout, stderr].map(
    (stream) =>
      new Promise<void>((resolve) => {
        // Node tells of a failed write to a file in a later tick. An empty write could itself fail.
        if (stream.writableLength === 0 || stream.destroyed) return process.nextTick(resolve);
        stream.once('error', () => resolve());
        stream.write('', () => resolve());
      }),
  );
  await Promise.all(each);
}

/** The reader of the pipe is gone. */
const isReaderGone = ({ code }: NodeJS.ErrnoException): boolean => code === 'EPIPE';

/**
 * Complains about the first failed write to stdout, unless the reader of the pipe is gone. Returns
 * a function that tells whether there was one.
 */
export function reportLostOutput({ stdout, stderr }: OutputOptions['streams']): () => boolean {
  let isLost = false;
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (isLost || isReaderGone(error)) return;
    isLost = true;
    const { errno, message } = error;
    stderr.write(`${PREFIX}cannot write the output: ${errno ? getSystemErrorMessage(errno) : message}\n`);
  });
  stderr.on('error', () => undefined);
  return () => isLost;
}

const SOON_MS = 1000;

/**
 * Ends the process at a second request, without waiting for a reader that has stopped reading. It
 * waits a moment, because two signals may be one request (timeout(1) sends TERM twice).
 */
export async function exitSoon(clock: Clock, code: number): Promise<never> {
  await settlesWithin(clock, SOON_MS, flushOutput());
  process.exit(code);
}

/**
 * Ends this process at the first ending signal, after the remaining output is written. A second
 * signal ends it soon, as `exitSoon` does. Returns a function that undoes this.
 */
export function exitAtSignal(clock: Clock, beforeExit = (): void => undefined): () => void {
  return onEndingSignal((signal, before) => {
    const code = exitCodeOfSignal(signal);
    if (before > 0) return void exitSoon(clock, code);
    beforeExit();
    void flushOutput().then(() => process.exit(code));
  });
}

/** Begins each line on standard error that comes from the command line itself. */
const PREFIX = 'cnapi: ';

const COLORS = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 } as const;
export type Color = keyof typeof COLORS;

export class Output {
  readonly json: boolean;
  readonly quiet: boolean;
  readonly #color: boolean;
  readonly #streams: Pick<Streams, OutputChannel>;
  /** Called once when stdout cannot be written any more; EPIPE: the reader of the pipe is gone. */
  onUnwritable: (error: NodeJS.ErrnoException) => void = (error) => process.exit(isReaderGone(error) ? 0 : EXIT.failed);
  #isGone = false;
  #hasLost = false;

  constructor({ json, quiet, env, color, streams }: OutputOptions) {
    this.json = json;
    this.quiet = quiet;
    this.#streams = streams;
    this.#color = color && !env.NO_COLOR && env.TERM !== 'dumb' && streams.stdout.isTTY === true;
    for (const stream of [streams.stdout, streams.stderr])
      stream.on('error', (error) => {
        this.#hasLost ||= !isReaderGone(error);
      });
    streams.stdout.on('error', (error) => {
      if (this.#isGone) return;
      this.#isGone = true;
      this.onUnwritable(error);
    });
  }

  /**
   * Resolves, when everything is written, to whether some of it could not be, as on a full disk. A
   * reader of a pipe that is gone loses nothing.
   */
  async hasLost(): Promise<boolean> {
    await flushOutput(this.#streams);
    return this.#hasLost;
  }

  get isTerminal(): boolean {
    return this.isTerminalOf('stdout');
  }

  isTerminalOf(name: OutputChannel): boolean {
    return this.#streams[name].isTTY === true;
  }

  /** Width of the terminal; undefined without a terminal. */
  get columns(): number | undefined {
    return this.isTerminal ? this.#streams.stdout.columns || 80 : undefined;
  }

  /** Writes the text unchanged; the caller has made it safe. */
  raw(text: string | Uint8Array): void {
    if (!this.#isGone) this.#streams.stdout.write(text);
  }

  /** The same to stderr. */
  rawError(text: string): void {
    this.#streams.stderr.write(text);
  }

  /**
   * Resolves when the reader of stdout has caught up, so that a stream is not read faster than its
   * output is written.
   */
  async ready(): Promise<void> {
    const { stdout } = this.#streams;
    while (!this.#isGone && stdout.writableNeedDrain) {
      await new Promise<void>((resolve) => {
        stdout.once('drain', resolve);
        stdout.once('error', () => resolve());
      });
    }
  }

  line(text: string): void {
    this.raw(`${escapeControlsInLines(text)}\n`);
  }

  /** Writes one JSON document: on several lines for people, on one for programs. */
  document(value: unknown): void {
    this.raw(`${safeJson(value, this.isTerminal ? 2 : undefined)}\n`);
  }

  /** Writes one line of JSON, for a stream of documents. */
  record(value: unknown): void {
    this.raw(`${safeJson(value)}\n`);
  }

  /** Writes a remark to stderr; nothing with --quiet. */
  note(text: string): void {
    if (!this.quiet) this.complain(text);
  }

  /** A remark that the next one replaces: it may be cut at the width of the terminal. */
  progress(text: string): void {
    const { isTTY, columns } = this.#streams.stderr;
    this.note(isTTY === true ? truncateToWidth(text, (columns || 80) - PREFIX.length) : text);
  }

  /** Writes to stderr, also with --quiet. */
  complain(text: string): void {
    this.rawError(`${PREFIX}${escapeControlsInLines(text)}\n`);
  }

  /** The answer of all commands that delete: `deleted push job ID`. */
  deleted(what: string, ids: readonly string[]): void {
    if (this.json) return this.document({ deleted: ids });
    for (const id of ids) this.line(`deleted ${what} ${id}`);
  }

  table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): void {
    const painted = columns.map((one) => (isStatus(one) ? { ...one, paint: this.#paintStatus } : one));
    const [head = '', ...lines] = table(painted, rows, this.columns);
    this.raw(`${this.paint('bold', head)}\n`);
    // Each cell was made safe before it was coloured.
    for (const line of lines) this.raw(`${line}\n`);
  }

  facts(pairs: readonly (readonly [string, unknown])[]): void {
    for (const line of nameValueLines(pairs)) {
      const [, name = '', gap = '', value = ''] = /^(status)( +)(.*)$/.exec(line) ?? [];
      if (name === '') this.line(line);
      else this.raw(`${name}${gap}${this.#paintStatus(escapeControlsInLines(value), value)}\n`);
    }
  }

  paint(color: Color, text: string): string {
    return this.#color ? `\x1b[${COLORS[color]}m${text}\x1b[0m` : text;
  }

  /** Colours the status of a server, a task or an instance. */
  readonly #paintStatus = (text: string, status: string): string => {
    const color = STATUS_COLORS.get(status);
    return color === undefined ? text : this.paint(color, text);
  };
}

const STATUS_COLORS: ReadonlyMap<string, Color> = new Map([
  ['running', 'green'],
  ['complete', 'green'],
  ['live', 'green'],
  ['draining', 'yellow'],
  ['rebooting', 'yellow'],
  ['unknown', 'red'],
  ['failure', 'red'],
  ['dead', 'red'],
]);

const isStatus = <Row>({ head }: Column<Row>): boolean => head === 'STATUS' || head === 'STATE';
