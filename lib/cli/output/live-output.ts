/**
 * Shows the output of a command on a server as it arrives: stdout to stdout, stderr to stderr,
 * whole lines with a prefix if there are several servers. On a terminal, control characters are
 * shown as escapes, because a server's output must not control the user's terminal. To a pipe or a
 * file, and with `raw`, output is written unchanged. Missing output is reported on stderr, never
 * within the output.
 */

import type { Clock, Timer } from '../../platform/time/clock.ts';
import type { TaskEvent } from '../../protocol/api/tasks.ts';
import { OUTPUT_STREAMS, type OutputChannel } from '../../protocol/output-streams.ts';
import { escapeControlsInLines } from '../terminal/escape-controls.ts';
import type { Output } from '../terminal/output.ts';
import { type OutputPiece, OutputSequence } from './output-sequence.ts';

interface Stream {
  /** The beginning of an incomplete line. */
  pending: string;
  lastWasLineEnd: boolean;
  isHeldReported: boolean;
}

type Sink = Pick<Output, 'raw' | 'rawError' | 'note' | 'complain' | 'isTerminalOf'>;

interface LiveOutputOptions {
  raw: boolean;
  /** Written before each line; already safe to show. */
  prefix: string | undefined;
  /** Names the server in remarks; already safe to show. */
  label: string;
}

/** A longer line is shown in parts. */
const MAX_PENDING = 64 * 1024;
/**
 * How long output after a gap is held back. Most commands have ended by then, and nothing is
 * missing.
 */
const HOLD_MS = 2000;

export class LiveOutput {
  readonly #output: Sink;
  readonly #clock: Clock;
  readonly #options: LiveOutputOptions;
  readonly #sequence = new OutputSequence();
  readonly #streams: Record<OutputChannel, Stream> = { stdout: newStream(), stderr: newStream() };
  #timer: Timer | undefined;
  #isIncomplete = false;

  constructor({ output, clock }: { output: Sink; clock: Clock }, options: LiveOutputOptions) {
    this.#output = output;
    this.#clock = clock;
    this.#options = options;
  }

  /** Some of the command's output is missing, or may be. */
  get isIncomplete(): boolean {
    return this.#isIncomplete;
  }

  /** Takes an `output` event. */
  write({ data, attempt }: Pick<TaskEvent, 'data' | 'attempt'>): void {
    this.#take(this.#sequence.write(data, attempt));
    if (OUTPUT_STREAMS.some((name) => this.#sequence.isHolding(name)))
      this.#timer ??= this.#clock.after(HOLD_MS, () => this.#heldForLong());
  }

  /**
   * Takes the task's result, and shows the output that was not shown while the task ran: agents of
   * earlier versions send all of it at the end. `taskId` is named in remarks.
   */
  end(result: unknown, taskId?: string): void {
    this.stop();
    this.#take(this.#sequence.end(result));
    for (const name of OUTPUT_STREAMS) {
      this.#endPending(name);
      this.#endLine(name);
    }
    if (this.#isIncomplete) this.#showMissing(result, taskId);
  }

  /** Shows nothing more, not even the output that is held back. */
  stop(): void {
    this.#timer?.cancel();
  }

  /**
   * A gap on a terminal may have been reported before the result came. In a pipe or a file, output
   * out of order would be wrong.
   */
  #showMissing(result: unknown, taskId: string | undefined): void {
    const { pieces, isWhole } = this.#sequence.fillGaps(result);
    for (const { stream, text } of pieces.filter((piece) => 'text' in piece)) {
      const bytes = Buffer.byteLength(text);
      if (!this.#output.isTerminalOf(stream)) {
        if (taskId !== undefined)
          this.#report('complain', `cnapi task ${taskId} shows ${bytes} bytes that are missing`);
        continue;
      }
      this.#report('complain', `${bytes} bytes of ${stream} that were missing above:`);
      this.#show(stream, text);
      this.#endPending(stream);
      this.#endLine(stream);
    }
    this.#isIncomplete = !isWhole || pieces.some(({ stream }) => !this.#output.isTerminalOf(stream));
  }

  /**
   * On a terminal, shows the output that is available now; a pipe or a file receives all of it in
   * order.
   */
  #heldForLong(): void {
    this.#timer = undefined;
    for (const name of OUTPUT_STREAMS) {
      if (!this.#sequence.isHolding(name)) continue;
      if (this.#output.isTerminalOf(name)) this.#take(this.#sequence.goOn(name));
      else this.#reportHeld(name);
    }
  }

  #reportHeld(name: OutputChannel): void {
    const stream = this.#streams[name];
    if (!stream.isHeldReported)
      this.#report('note', `some of ${name} did not come while it ran; the rest follows at its end`);
    stream.isHeldReported = true;
  }

  #take(pieces: readonly OutputPiece[]): void {
    for (const piece of pieces) {
      if ('text' in piece) this.#show(piece.stream, piece.text);
      else this.#reportCut(piece.stream, piece.cut);
    }
  }

  #reportCut(name: OutputChannel, bytes: number | null): void {
    this.#isIncomplete = true;
    this.#endPending(name);
    this.#endLine(name);
    if (bytes === null) this.#report('complain', `some of ${name} may be missing; the task's result has what was kept`);
    else this.#report('complain', `${bytes} bytes of ${name} are missing here`);
  }

  #report(how: 'note' | 'complain', text: string): void {
    this.#output[how](this.#options.label === '' ? text : `${this.#options.label}: ${text}`);
  }

  #show(name: OutputChannel, text: string): void {
    const stream = this.#streams[name];
    if (this.#options.prefix === undefined) {
      stream.lastWasLineEnd = text.endsWith('\n');
      return this.#emit(name, text);
    }
    const lines = (stream.pending + text).split('\n');
    stream.pending = lines.pop() ?? '';
    if (lines.length > 0) this.#emit(name, `${lines.join('\n')}\n`);
    if (stream.pending.length > MAX_PENDING) this.#endPending(name);
  }

  #endPending(name: OutputChannel): void {
    const stream = this.#streams[name];
    if (stream.pending !== '') this.#emit(name, `${stream.pending}\n`);
    stream.pending = '';
  }

  /** Ends the line, so that the shell's prompt and remarks begin on a new line. */
  #endLine(name: OutputChannel): void {
    const stream = this.#streams[name];
    if (!stream.lastWasLineEnd && this.#output.isTerminalOf(name)) this.#emit(name, '\n');
    stream.lastWasLineEnd = true;
  }

  #emit(name: OutputChannel, text: string): void {
    const safe = this.#output.isTerminalOf(name) && !this.#options.raw ? escapeControlsInLines(text) : text;
    const { prefix } = this.#options;
    // Splits at line feeds only; other characters that a pattern treats as line ends belong to the
    // command's output.
    const shown =
      prefix === undefined
        ? safe
        : safe
            .replace(/\n$/, '')
            .split('\n')
            .map((line) => `${prefix}${line}\n`)
            .join('');
    if (name === 'stdout') this.#output.raw(shown);
    else this.#output.rawError(shown);
  }
}

/** The prefix of a server's lines; `label` must be safe to show. */
export function prefixOf(label: string, width: number): string {
  return `${label.padEnd(width)} | `;
}

function newStream(): Stream {
  return { pending: '', lastWasLineEnd: true, isHeldReported: false };
}
