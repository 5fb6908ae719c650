/**
 * The streams of this instance's callers. A caller opens one and gets its name; a task tells the
 * server's agent to join it here. The name of a stream is its secret, and only the agent of its
 * server may join.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { CnapiError } from '../../platform/errors.ts';
import { KeyedCounts } from '../../platform/limiting/keyed-counts.ts';
import type { Random } from '../../platform/random.ts';
import { type Clock, settlesWithin } from '../../platform/time/clock.ts';
import { STREAM_SUBPROTOCOL } from '../../protocol/streams/stream.ts';
import {
  keepAlive,
  STREAM_SOCKET,
  StreamSocket,
  type StreamSocketEvents,
} from '../../protocol/streams/stream-socket.ts';
import { InstanceDrainingError } from '../request-errors.ts';
import { type CallerEnd, CallerStream } from './caller-stream.ts';

interface CallerStreamsDeps {
  cnapiUuid: string;
  clock: Clock;
  random: Random;
}

interface UpgradedSocket {
  socket: Duplex;
  head: Buffer;
}

interface StreamOwner {
  serverUuid: string;
  /** Whose streams are counted together: a token or an address. */
  owner: string;
}

interface AddedStream {
  name: string;
  /** Ends it; the agent may not join any more. */
  cancel(): void;
}

/** Two connections each, and up to 1 MiB for a slow reader. */
const MAX_STREAMS = 1_000;
const MAX_STREAMS_OF_OWNER = 100;
/** An agent runs 64 at a time; one caller must not take them all. */
const MAX_STREAMS_TO_SERVER = 16;
const LAST_BYTES_MS = 500;

/** The maximum number of streams is open. */
class TooManyStreamsError extends CnapiError {
  constructor(status: 429 | 503, message: string) {
    super('TooManyStreams', status, message, { retryAfterSeconds: 1 });
  }
}

class NoSuchStreamError extends CnapiError {
  constructor(name: string) {
    super('ResourceNotFound', 404, `No caller waits with stream ${name} at this instance`);
  }
}

class BadHandshakeError extends CnapiError {
  constructor(cause: Error) {
    super('BadRequest', 400, cause.message, { cause });
  }
}

export class CallerStreams {
  readonly #deps: CallerStreamsDeps;
  readonly #server: WebSocketServer;
  /** Whose caller waits, or whose agent has joined, by name. */
  readonly #named = new Map<string, CallerStream>();
  /** Also those whose last bytes are not taken yet. */
  readonly #open = new Set<CallerStream>();
  readonly #owners = new KeyedCounts();
  /** Resolves when no stream is open, and none will be opened. */
  readonly #allClosed = Promise.withResolvers<void>();
  #opened = 0;
  #isLeaving = false;

  constructor(deps: CallerStreamsDeps) {
    this.#deps = deps;
    this.#server = new WebSocketServer({
      ...STREAM_SOCKET,
      noServer: true,
      clientTracking: false,
      skipUTF8Validation: false,
      handleProtocols: (offered) => (offered.has(STREAM_SUBPROTOCOL) ? STREAM_SUBPROTOCOL : false),
    });
  }

  /** Now open. */
  get count(): number {
    return this.#open.size;
  }

  /** Since the start. */
  get opened(): number {
    return this.#opened;
  }

  /** Takes over the socket of a caller that opens a stream, or returns why not. */
  open(
    request: IncomingMessage,
    { serverUuid, owner, ...upgraded }: UpgradedSocket & StreamOwner,
  ): CnapiError | undefined {
    const refusal = this.#refusalOf({ serverUuid, owner });
    if (refusal !== undefined) return refusal;
    return this.#upgrade(request, upgraded, (caller) => {
      const name = this.#newName();
      const openCaller = (events: StreamSocketEvents) => {
        const socket = new StreamSocket(caller, this.#deps.clock, events);
        socket.sendText(JSON.stringify({ stream: name }));
        return socket;
      };
      this.#add(name, openCaller, { serverUuid, owner });
    });
  }

  /**
   * Opens a stream for a caller without a WebSocket. @throws CnapiError if there are too many, and
   * opens nothing
   */
  add(openCaller: (events: StreamSocketEvents) => CallerEnd, owner: StreamOwner): AddedStream {
    const refusal = this.#refusalOf(owner);
    if (refusal !== undefined) throw refusal;
    const name = this.#newName();
    const stream = this.#add(name, openCaller, owner);
    const cancel = () => {
      this.#named.delete(name);
      stream.terminate();
    };
    return { name, cancel };
  }

  /** Takes over the socket of an agent that joins the stream of this name, or returns why not. */
  join(
    request: IncomingMessage,
    { name, serverUuid, ...upgraded }: UpgradedSocket & { name: string; serverUuid: string },
  ): CnapiError | undefined {
    const stream = this.#named.get(name);
    if (stream?.isWaiting !== true || stream.serverUuid !== serverUuid) return new NoSuchStreamError(name);
    return this.#upgrade(request, upgraded, (agent) => stream.join(agent));
  }

  /** The instance will leave: opens no more. */
  beginDrain(): void {
    this.#isLeaving = true;
  }

  /** Ends all streams, and tells their callers. */
  end(): void {
    this.#isLeaving = true;
    const { code, message } = leaving();
    for (const stream of this.#open) stream.cut(code, message);
    this.#noteClosed();
  }

  /** Ends all connections; those that have not taken their last bytes, after a moment. */
  async stop(): Promise<void> {
    this.end();
    await settlesWithin(this.#deps.clock, LAST_BYTES_MS, this.#allClosed.promise);
    for (const stream of this.#open) stream.terminate();
    this.#server.close();
  }

  #refusalOf({ serverUuid, owner }: StreamOwner): CnapiError | undefined {
    if (this.#isLeaving) return leaving();
    if (this.#open.size >= MAX_STREAMS)
      return new TooManyStreamsError(503, `This instance has the maximum of ${MAX_STREAMS} streams; try another`);
    if (this.#owners.of(owner) >= MAX_STREAMS_OF_OWNER)
      return new TooManyStreamsError(429, `You have ${MAX_STREAMS_OF_OWNER} streams at this instance, the maximum`);
    if (this.#owners.of(`${owner} ${serverUuid}`) >= MAX_STREAMS_TO_SERVER)
      return new TooManyStreamsError(429, `You have ${MAX_STREAMS_TO_SERVER} streams to this server, the maximum`);
    return undefined;
  }

  #newName(): string {
    return `${this.#deps.cnapiUuid}.${this.#deps.random.uuid()}`;
  }

  #add(
    name: string,
    openCaller: (events: StreamSocketEvents) => CallerEnd,
    { serverUuid, owner }: StreamOwner,
  ): CallerStream {
    const { clock } = this.#deps;
    const counted = [owner, `${owner} ${serverUuid}`];
    const stream: CallerStream = new CallerStream(openCaller, {
      clock,
      serverUuid,
      onEnded: () => this.#named.delete(name),
      onClosed: () => {
        this.#open.delete(stream);
        for (const key of counted) this.#owners.add(key, -1);
        this.#noteClosed();
      },
    });
    for (const key of counted) this.#owners.add(key);
    this.#opened += 1;
    this.#open.add(stream);
    this.#named.set(name, stream);
    return stream;
  }

  #noteClosed(): void {
    if (this.#isLeaving && this.#open.size === 0) this.#allClosed.resolve();
  }

  #upgrade(
    request: IncomingMessage,
    { socket, head }: UpgradedSocket,
    take: (webSocket: WebSocket) => void,
  ): CnapiError | undefined {
    let refusal: CnapiError | undefined;
    const onRefused = (error: Error) => {
      refusal = new BadHandshakeError(error);
    };
    // If the event has a listener, ws sends no answer itself. It emits the event before
    // `handleUpgrade` returns.
    this.#server.once('wsClientError', onRefused);
    this.#server.handleUpgrade(request, socket, head, (webSocket) => {
      keepAlive(socket as Socket);
      take(webSocket);
    });
    this.#server.off('wsClientError', onRefused);
    return refusal;
  }
}

const leaving = () => new InstanceDrainingError('open the stream again, another one takes it');
