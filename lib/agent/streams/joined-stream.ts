/**
 * One stream at its agent, as the input and output of a command. A reader that is slow at one end
 * makes the writer at the other end wait.
 */
import { finished, Readable, Writable } from 'node:stream';
import type { WebSocket } from 'ws';
import type { Clock } from '../../platform/time/clock.ts';
import {
  CHANNELS,
  channelIn,
  jsonIn,
  type LogPlace,
  type StreamStatus,
  streamMessage,
  streamMessages,
  type TerminalSize,
  terminalSize,
} from '../../protocol/streams/stream.ts';
import { StreamSocket } from '../../protocol/streams/stream-socket.ts';

/** RFC 6455, section 7.4.1. */
const NORMAL = 1000;
const LAST_BYTES_MS = 1000;

export class JoinedStream {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
  /** Aborts when the caller, or the instance between, has gone; the reason is a sentence. */
  readonly lost: AbortSignal;
  #onResize: ((size: TerminalSize) => void) | undefined;
  /** The last size, until somebody wants it: a caller may tell it before the command has begun. */
  #earlySize: TerminalSize | undefined;
  readonly #socket: StreamSocket;
  readonly #lost = new AbortController();
  readonly #closed = Promise.withResolvers<void>();
  #hasInputEnded = false;
  /** Writes that wait until the socket has taken earlier ones. */
  #waiting: (() => void)[] = [];

  constructor(socket: WebSocket, clock: Clock) {
    this.lost = this.#lost.signal;
    this.#socket = new StreamSocket(socket, clock, {
      message: (message, isBinary) => this.#receive(message, isBinary),
      drained: () => this.#release(),
      closed: (reason) => this.#end(reason),
    });
    this.stdin = new Readable({ read: () => this.#socket.resume() });
    this.stdin.on('error', () => undefined);
    this.stdout = this.#output(CHANNELS.stdout);
    this.stderr = this.#output(CHANNELS.stderr);
  }

  /**
   * Sends the status after all output, and closes the stream; resolves when it is closed. A caller
   * that does not read has until a moment after `signal` aborts; then it gets no status.
   */
  async end(status: StreamStatus, { clock, signal }: { clock: Clock; signal: AbortSignal }): Promise<void> {
    const terminate = () => void clock.after(LAST_BYTES_MS, () => this.#terminate());
    if (signal.aborted) terminate();
    else signal.addEventListener('abort', terminate, { once: true });
    // The socket takes nothing after the status, so what still waits for it would be lost.
    await Promise.all([taken(this.stdout), taken(this.stderr)]);
    this.#socket.send(streamMessage(CHANNELS.status, JSON.stringify(status)));
    this.#socket.closeWhenSent(NORMAL, 'ended');
    await this.#closed.promise;
    signal.removeEventListener('abort', terminate);
  }

  /** Tells the caller from where the task can continue, after all output so far. */
  tellPosition(position: LogPlace): void {
    this.#socket.send(streamMessage(CHANNELS.position, JSON.stringify(position)));
  }

  /** Is called with each size of the terminal, also with one that has arrived before. */
  onResize(receive: (size: TerminalSize) => void): void {
    this.#onResize = receive;
    if (this.#earlySize !== undefined) receive(this.#earlySize);
  }

  #terminate(): void {
    this.#socket.terminate();
    this.#end('its caller did not read');
  }

  #receive(message: Buffer, isBinary: boolean): void {
    if (!isBinary) return this.#socket.refuse('messages must be binary');
    switch (channelIn(message)) {
      case CHANNELS.stdin:
        if (message.length > 1 && !this.#hasInputEnded && !this.stdin.push(message.subarray(1))) this.#socket.pause();
        return;
      case CHANNELS.close:
        if (message[1] === CHANNELS.stdin) this.#endInput();
        return;
      case CHANNELS.resize: {
        const size = jsonIn(terminalSize, message);
        if (size === undefined) return;
        if (this.#onResize === undefined) this.#earlySize = size;
        else this.#onResize(size);
        return;
      }
      default:
        // A newer caller may have more channels.
        return;
    }
  }

  #endInput(): void {
    if (this.#hasInputEnded) return;
    this.#hasInputEnded = true;
    this.stdin.push(null);
  }

  #output(channel: number): Writable {
    return new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        let goOn = true;
        for (const message of streamMessages(channel, chunk)) goOn = this.#socket.send(message);
        if (goOn) done();
        else this.#waiting.push(done);
      },
      final: (done) => {
        this.#socket.send(Buffer.from([CHANNELS.close, channel]));
        done();
      },
    });
  }

  #release(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const done of waiting) done();
  }

  #end(reason: string): void {
    // The input stays open: what it lacks must not look like its end.
    this.#lost.abort(reason);
    this.#release();
    this.#closed.resolve();
  }
}

/** Resolves when the socket has taken what was written to `output`, or is lost. */
function taken(output: Writable): Promise<void> {
  return new Promise((resolve) => {
    if (output.writableEnded) finished(output, () => resolve());
    else output.write('', () => resolve());
  });
}
