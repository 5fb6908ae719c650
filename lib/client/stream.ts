/** A stream to a server's agent, at the end of its caller (lib/protocol/streams/stream.ts). */

import {
  CHANNELS,
  channelIn,
  jsonIn,
  type LogPlace,
  logPlace,
  STREAM_SUBPROTOCOL,
  type StreamStatus,
  streamGreeting,
  streamMessage,
  streamMessages,
  streamStatus,
  type TerminalSize,
} from '../protocol/streams/stream.ts';
import { STREAM_SOCKET, StreamSocket } from '../protocol/streams/stream-socket.ts';
import { NoAnswerError } from './client-errors.ts';
import type { FailoverClient } from './failover-client.ts';

interface ClientStreamEvents {
  /** Output of the agent; returns false if `resume` will be called for the next. */
  output(channel: 'stdout' | 'stderr', bytes: Buffer): boolean;
  /** The output of a connection has ended; its input may go on. */
  outputEnded?(): void;
  /** From where the log continues after the output so far. */
  position?(position: LogPlace): void;
  /** `send` may go on. */
  drained(): void;
  /** Emitted once, as the last event; without a status the connection broke. */
  ended(status: StreamStatus | undefined, reason: string): void;
}

export class ClientStream {
  /** The name under which a task uses the stream. */
  readonly name: string;
  readonly #socket: StreamSocket;

  private constructor(name: string, socket: StreamSocket) {
    this.name = name;
    this.#socket = socket;
  }

  /**
   * Resolves when the instance has named it. @throws ApiError, NoAnswerError, UnexpectedAnswerError
   */
  static async open(http: FailoverClient, serverUuid: string, events: ClientStreamEvents): Promise<ClientStream> {
    const path = `/servers/${serverUuid}/stream`;
    const options = { protocol: STREAM_SUBPROTOCOL, socket: STREAM_SOCKET };
    const webSocket = await http.upgrade(path, options);
    const named = Promise.withResolvers<string>();
    let status: StreamStatus | undefined;
    const socket = new StreamSocket(webSocket, http.clock, {
      message(message, isBinary) {
        if (!isBinary) {
          const stream = jsonIn(streamGreeting, message.toString())?.stream;
          if (stream !== undefined) named.resolve(stream);
          return;
        }
        const channel = channelIn(message);
        if (channel === CHANNELS.close && message[1] === CHANNELS.stdout) events.outputEnded?.();
        if (channel === CHANNELS.status) status = jsonIn(streamStatus, message) ?? {};
        if (channel === CHANNELS.position) {
          const position = jsonIn(logPlace, message);
          if (position !== undefined) events.position?.(position);
        }
        const name = channel === CHANNELS.stdout ? 'stdout' : channel === CHANNELS.stderr ? 'stderr' : undefined;
        if (name !== undefined && !events.output(name, message.subarray(1))) socket.pause();
      },
      drained: () => events.drained(),
      closed(reason) {
        named.reject(new NoAnswerError(`GET ${path}`, [{ address: 'the instance', reason, mayHaveArrived: false }]));
        events.ended(status, reason);
      },
    });
    socket.resume();
    return new ClientStream(await named.promise, socket);
  }

  /** Input of the agent; returns false if the caller should wait for `drained`. */
  send(bytes: Buffer): boolean {
    let goOn = true;
    for (const message of streamMessages(CHANNELS.stdin, bytes)) goOn = this.#socket.send(message);
    return goOn;
  }

  /** The input has ended; output may go on. */
  endInput(): void {
    this.#socket.send(Buffer.from([CHANNELS.close, CHANNELS.stdin]));
  }

  resize(size: TerminalSize): void {
    this.#socket.send(streamMessage(CHANNELS.resize, JSON.stringify(size)));
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Also if the instance has not taken everything; emits nothing more. */
  close(): void {
    this.#socket.terminate();
  }
}
