/**
 * The lines that Triton's clients of `docker-exec` read and write, and the messages of a stream
 * that they stand for. Each line is a JSON object and ends with CR LF. Pure.
 *
 *     to the program    {"type":"stdin","data":…}, {"type":"tty","data":…}, {"type":"tty","resize":{"w":…,"h":…}},
 *                       {"type":"end"}: the input has ended
 *     to the caller     {"type":"stdout","data":…}, {"type":"stderr","data":…}, {"type":"tty","data":…},
 *                       {"type":"end","data":{"code":…,"signal":…}}
 */
import { z } from 'zod';
import {
  CHANNELS,
  channelIn,
  jsonIn,
  type StreamStatus,
  streamMessage,
  streamMessages,
  streamStatus,
} from '../../../protocol/streams/stream.ts';
import type { PortCodec, RefusedInput } from './port-codec.ts';

interface DockerLineOptions {
  /** All output is of the type `tty`. */
  isTty: boolean;
  /** The last line tells the exit code; logs have none. */
  hasExitCode: boolean;
}

/**
 * Clients send in a line what one read returned, 64 KiB as a rule, of which each byte may be six
 * characters.
 */
const MAX_LINE_CHARS = 1024 * 1024;
/** Maximum number of pieces in which one line may arrive. */
const MAX_PIECES = 1_024;
/** What a shell answers for a program that it does not find, and for one that it cannot start. */
const NO_SUCH_PROGRAM = 127;
const NOT_STARTED = 126;
const MORE = { stream: true };
const NO_LINE: RefusedInput = { refused: 'the caller has sent a line that is not one of docker-exec' };

const inputLine = z.union([
  z.object({ type: z.literal('tty'), resize: z.object({ w: z.number(), h: z.number() }) }),
  z.object({ type: z.enum(['stdin', 'tty']), data: z.string() }),
  z.object({ type: z.literal('end') }),
]);

export const END_OF_INPUT = Buffer.from([CHANNELS.close, CHANNELS.stdin]);

/** The lines of one connection. */
export class DockerLines implements PortCodec {
  /** The last line tells how a program has ended. */
  readonly isWhole = true;
  readonly #options: DockerLineOptions;
  readonly #input = newDecoder();
  /** An input line that has not ended. Pieces are joined late: each of them may be one byte. */
  #begun: string[] = [];
  #begunChars = 0;
  /** A character may be in two messages. */
  readonly #output = { stdout: newDecoder(), stderr: newDecoder() };

  constructor(options: DockerLineOptions) {
    this.#options = options;
  }

  read(bytes: Buffer): Buffer[] | RefusedInput {
    const messages: Buffer[] = [];
    for (const line of this.#linesIn(this.#input.decode(bytes, MORE))) {
      if (line.trim() === '') continue;
      const parsed = line.length > MAX_LINE_CHARS ? undefined : jsonIn(inputLine, line);
      if (parsed === undefined) return NO_LINE;
      messages.push(...messagesOf(parsed));
    }
    return this.#begunChars > MAX_LINE_CHARS ? NO_LINE : messages;
  }

  end(): Buffer[] {
    return [END_OF_INPUT];
  }

  /** The lines that end in `text`. */
  #linesIn(text: string): string[] {
    const lines = text.split('\n');
    const rest = lines.pop() ?? '';
    if (lines.length > 0) {
      lines[0] = this.#begun.join('') + lines[0];
      this.#begun = [];
      this.#begunChars = 0;
    }
    if (this.#begun.length >= MAX_PIECES) this.#begun = [this.#begun.join('')];
    this.#begun.push(rest);
    this.#begunChars += rest.length;
    return lines;
  }

  write(message: Buffer): string {
    switch (channelIn(message)) {
      case CHANNELS.stdout:
        return this.#outputLine('stdout', this.#output.stdout.decode(message.subarray(1), MORE));
      case CHANNELS.stderr:
        return this.#outputLine('stderr', this.#output.stderr.decode(message.subarray(1), MORE));
      case CHANNELS.status: {
        const rest = (['stdout', 'stderr'] as const).map((name) => this.#outputLine(name, this.#output[name].decode()));
        return rest.join('') + this.#lastLines(jsonIn(streamStatus, message) ?? {});
      }
      default:
        return '';
    }
  }

  #outputLine(stream: 'stdout' | 'stderr', data: string): string {
    return data === '' ? '' : lineOf({ type: this.#options.isTty ? 'tty' : stream, data });
  }

  #lastLines({ error, exit_code = null, signal = null }: StreamStatus): string {
    const told = error && this.#outputLine('stderr', `cnapi: ${error.message} (${error.code})\r\n`);
    if (!this.#options.hasExitCode) return told ?? '';
    const code = error === undefined ? exit_code : error.code === 'NoSuchProgram' ? NO_SUCH_PROGRAM : NOT_STARTED;
    return (told ?? '') + lineOf({ type: 'end', data: { code, signal } });
  }
}

function messagesOf(line: z.infer<typeof inputLine>): Iterable<Buffer> {
  if ('resize' in line) {
    const { w: columns, h: rows } = line.resize;
    return [streamMessage(CHANNELS.resize, JSON.stringify({ columns, rows }))];
  }
  return 'data' in line ? streamMessages(CHANNELS.stdin, Buffer.from(line.data)) : [END_OF_INPUT];
}

const newDecoder = () => new TextDecoder('utf-8', { ignoreBOM: true });
const lineOf = (value: object) => `${JSON.stringify(value)}\r\n`;
