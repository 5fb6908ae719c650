/**
 * The output of a command on a server, as it comes: stdout to stdout, stderr to stderr, whole lines with a prefix when there
 * are several servers. To a terminal control characters are shown as escapes, because what a server prints must not
 * steer the terminal of whoever asks it; to a pipe or a file everything goes as it is, and so it does with `raw`.
 */
import type { Output } from './output.ts';
import { visibleLines } from './visible.ts';

type StreamName = 'stdout' | 'stderr';

interface Stream {
  /** Bytes up to which all has been shown, or is known to be missing. */
  shownBytes: number;
  shownCharacters: number;
  hasGap: boolean;
  /** The beginning of a line. */
  pending: string;
  lastWasLineEnd: boolean;
}

export interface LiveOutputOptions {
  raw: boolean;
  /** Before each line, made safe already. */
  prefix: string | undefined;
}

/** A line longer than this is shown in parts. */
const MAX_PENDING = 64 * 1024;

export class LiveOutput {
  readonly #output: Output;
  readonly #options: LiveOutputOptions;
  readonly #streams: Record<StreamName, Stream> = { stdout: newStream(), stderr: newStream() };

  constructor(output: Output, options: LiveOutputOptions) {
    this.#output = output;
    this.#options = options;
  }

  /** The data of an `output` event. */
  write(data: Readonly<Record<string, unknown>>): void {
    const { stream: name, offset, text, cut } = data;
    if (name !== 'stdout' && name !== 'stderr') return;
    const stream = this.#streams[name];
    if (typeof cut === 'number') return this.#tellGap(name, stream, cut);
    if (typeof text !== 'string') return;
    if (typeof offset === 'number' && offset > stream.shownBytes)
      this.#tellGap(name, stream, offset - stream.shownBytes);
    stream.shownBytes += Buffer.byteLength(text);
    stream.shownCharacters += text.length;
    this.#show(name, stream, text);
  }

  /** The result of the task: what of its output was not shown while it ran (an older agent shows none) comes now. */
  end(result: unknown): void {
    for (const name of ['stdout', 'stderr'] as const) {
      const stream = this.#streams[name];
      const all = (result as Record<string, unknown> | null | undefined)?.[name];
      if (typeof all === 'string' && !stream.hasGap && all.length > stream.shownCharacters)
        this.#show(name, stream, all.slice(stream.shownCharacters));
      if (stream.pending !== '') this.#emit(name, `${stream.pending}\n`);
      stream.pending = '';
      this.#endLine(name, stream);
    }
  }

  #tellGap(name: StreamName, stream: Stream, bytes: number): void {
    stream.hasGap = true;
    stream.shownBytes += bytes;
    this.#show(name, stream, `\n[… ${bytes} bytes not shown …]\n`);
  }

  #show(name: StreamName, stream: Stream, text: string): void {
    if (text === '') return;
    if (this.#options.prefix === undefined) {
      stream.lastWasLineEnd = text.endsWith('\n');
      return this.#emit(name, text);
    }
    const lines = (stream.pending + text).split('\n');
    stream.pending = lines.pop() ?? '';
    if (lines.length > 0) this.#emit(name, `${lines.join('\n')}\n`);
    if (stream.pending.length > MAX_PENDING) {
      this.#emit(name, `${stream.pending}\n`);
      stream.pending = '';
    }
  }

  /** The shell's prompt, and what others say, begins on a line of its own. */
  #endLine(name: StreamName, stream: Stream): void {
    if (!stream.lastWasLineEnd && (name === 'stdout' ? process.stdout : process.stderr).isTTY) this.#emit(name, '\n');
    stream.lastWasLineEnd = true;
  }

  #emit(name: StreamName, text: string): void {
    const isTerminal = (name === 'stdout' ? process.stdout : process.stderr).isTTY === true;
    const safe = isTerminal && !this.#options.raw ? visibleLines(text) : text;
    const { prefix } = this.#options;
    // By line feeds alone: what else a pattern takes for the end of a line is the command's own.
    const shown =
      prefix === undefined
        ? safe
        : safe
            .replace(/\n$/, '')
            .split('\n')
            .map((line) => `${prefix}${line}\n`)
            .join('');
    if (name === 'stdout') this.#output.raw(shown);
    else process.stderr.write(shown);
  }
}

/** What stands before a server's lines; of a label that is safe to show. */
export function prefixOf(label: string, width: number): string {
  return `${label.padEnd(width)} | `;
}

function newStream(): Stream {
  return { shownBytes: 0, shownCharacters: 0, hasGap: false, pending: '', lastWasLineEnd: true };
}
