/**
 * One WebSocket of one agent, as the instance sees it. Parses what comes, bounds how fast it is read, and carries
 * the session through its greeting. Frames that make no sense end this connection, with a reason, and touch nothing else.
 *
 *     greeting ──hello──▶ accepting ──accepted, welcome sent──▶ awaiting-inventory ──inventory──▶ live
 *        any ──refused, silent, malformed frame, socket closed, superseded──▶ closed
 */
import { type RawData, WebSocket } from 'ws';
import type { Logger } from '../log.ts';
import type { Clock, Timer } from '../ports/clock.ts';
import type { Refusal } from '../roster/roster.ts';
import type { Session, SessionSocket } from '../roster/session.ts';
import { hear } from '../roster/silence.ts';
import type { Ticker } from '../roster/ticker.ts';
import { closeReason } from '../wire/close-reason.ts';
import { encodeFrame, encodeHeartbeat, FrameError, parseAgentFrame } from '../wire/codec.ts';
import type { Address, AgentFrame, ErrorFrame, HelloFrame, InstanceFrame, InventoryFrame } from '../wire/frames.ts';
import { HELLO_WITHIN_MS, INVENTORY_WITHIN_MS, MAX_GREETING_BYTES, PROTOCOL_VERSION } from '../wire/limits.ts';
import type { AgentSocket, AgentStream } from './agent-socket.ts';
import { pauseMsOf, payFor } from './allowance.ts';
import { Pings } from './pings.ts';
import { shortFrame } from './short-frame.ts';

export type ConnectionState = 'greeting' | 'accepting' | 'awaiting-inventory' | 'live' | 'closed';

/** What the connection asks of the link server. A rejection of any of them ends the connection. */
export interface ConnectionHandlers {
  hello(connection: Connection, hello: HelloFrame): Promise<void>;
  inventory(connection: Connection, session: Session, frame: InventoryFrame): Promise<void>;
  /** A frame that belongs to a live session: task events and ends, sysinfo, status. */
  frame(connection: Connection, session: Session, frame: AgentFrame): void;
  /** The socket is gone; `session` is what it carried, if it came that far. */
  closed(connection: Connection, session: Session | undefined): void;
  /** The session must end because of what its peer did. */
  broken(
    connection: Connection,
    session: Session,
    reason: 'protocol-error' | 'no-inventory' | 'slow-reader',
    detail: string,
  ): void;
}

export interface ConnectionParts {
  socket: AgentSocket;
  stream: AgentStream;
  serverUuid: string;
}

/** The same object for all connections, so that none keeps a copy. */
export interface ConnectionDeps {
  handlers: ConnectionHandlers;
  /** What the agent's deadlines are counted in. */
  ticker: Pick<Ticker, 'after'>;
  clock: Clock;
  log: Logger;
}

/** Bytes waiting to be sent to an agent that does not read. */
const MAX_BACKLOG_BYTES = 16 * 1024 * 1024;

/** What one connection's peer did not understand is logged this often; more tells nothing new, and fills the disk. */
const MAX_COMPLAINTS_LOGGED = 10;

const CLOSE_NORMAL = 1000;
const CLOSE_PROTOCOL_ERROR = 1002;

export class Connection implements SessionSocket {
  serverUuid: string;
  readonly #deps: ConnectionDeps;
  readonly #socket: AgentSocket;
  readonly #stream: AgentStream;
  #state: ConnectionState = 'greeting';
  #session: Session | undefined;
  #peerVersion = PROTOCOL_VERSION;
  #deadline: Timer | undefined;
  #complaints = 0;
  /** Made at the first probe: most connections never need one. */
  #pings: Pings | undefined;
  /** See allowance.ts. */
  #paidAt: number;
  #greetingBytes = 0;
  #reading: Timer | undefined;
  #isGone = false;

  constructor({ socket, stream, serverUuid }: ConnectionParts, deps: ConnectionDeps) {
    this.#deps = deps;
    this.#socket = socket;
    this.#stream = stream;
    this.serverUuid = serverUuid;
    this.#paidAt = deps.clock.now();
    this.#deadline = deps.ticker.after(HELLO_WITHIN_MS, () => this.#fail('no hello came in time'));
    stream.on('data', (chunk: Buffer) => this.#heardBytes(chunk.length));
    socket.on('message', (data, isBinary) => this.#received(data, isBinary));
    // What breaks a socket closes it, and that is what counts.
    socket.on('error', ignore);
    socket.on('close', () => this.#gone());
  }

  get state(): ConnectionState {
    return this.#state;
  }

  get isOpen(): boolean {
    return !this.#isGone && this.#state !== 'closed';
  }

  get isUnread(): boolean {
    return this.#reading !== undefined;
  }

  /** The session is registered: greet the agent and await its inventory. */
  welcome(session: Session, frame: InstanceFrame): void {
    this.#session = session;
    // The same text: kept once.
    this.serverUuid = session.serverUuid;
    if (!this.isOpen) {
      this.#deps.handlers.closed(this, session);
      return;
    }
    this.#state = 'awaiting-inventory';
    this.#deadline = this.#deps.ticker.after(INVENTORY_WITHIN_MS, () => this.#noInventory(session));
    this.send(frame);
  }

  refuse(refusal: Refusal, addresses: Address[]): void {
    this.send({ type: 'refuse', ...refusal, addresses });
    this.terminate(refusal.message);
  }

  /** Queues the frame; false when the connection is closed or its peer does not take bytes any more. */
  send(frame: InstanceFrame): boolean {
    if (!this.#takesMore()) return false;
    this.#socket.send(encodeFrame(frame));
    return true;
  }

  probe(): void {
    if (this.isOpen) this.#pinging().send();
  }

  answersProbe(withinMs: number): Promise<boolean> {
    return this.isOpen ? this.#pinging().ask(withinMs) : Promise.resolve(false);
  }

  askToLeave(reason: string, addresses: Address[], withinMs?: number): void {
    this.send({ type: 'goaway', reason, addresses, ...(withinMs === undefined ? {} : { withinMs }) });
  }

  /** Says why in the close frame, waits for nobody, and is closed for whatever still comes in. */
  terminate(reason: string): void {
    this.#close(CLOSE_NORMAL, reason);
  }

  #close(code: number, reason: string): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#cancelDeadline();
    this.#socket.close(code, closeReason(reason));
    // A peer that is gone never answers the close frame; the socket is not kept for it.
    this.#deadline = this.#deps.clock.after(1000, () => this.#socket.terminate());
  }

  #received(data: RawData, isBinary: boolean): void {
    if (this.#state === 'closed') return;
    if (isBinary || !Buffer.isBuffer(data)) {
      this.#fail('frames are text');
      return;
    }
    const now = this.#deps.clock.now();
    this.#paidAt = payFor(data.length, this.#paidAt, now);
    const pauseMs = pauseMsOf(this.#paidAt, now);
    if (pauseMs > 0) this.#readLater(pauseMs);
    this.#parse(data.toString());
  }

  #readLater(pauseMs: number): void {
    this.#socket.pause();
    this.#reading?.cancel();
    this.#reading = this.#deps.clock.after(pauseMs, () => {
      this.#reading = undefined;
      if (!this.#isGone) this.#socket.resume();
    });
  }

  #parse(text: string): void {
    try {
      this.#take(parseAgentFrame(text));
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#misunderstood(error);
    }
  }

  #take(frame: AgentFrame): void {
    const session = this.#session;
    if (frame.type === 'error') this.#noteComplaint(frame);
    else if (frame.type === 'hello') this.#takeHello(frame);
    else if (session === undefined) this.#misplaced(frame);
    else if (frame.type === 'heartbeat') this.#answerHeartbeat(frame.sequence);
    else if (frame.type === 'inventory') this.#takeInventory(session, frame);
    else this.#deps.handlers.frame(this, session, frame);
  }

  #takeHello(frame: HelloFrame): void {
    if (this.#state !== 'greeting') {
      this.#misplaced(frame);
      return;
    }
    this.#state = 'accepting';
    this.#cancelDeadline();
    this.#peerVersion = frame.version;
    void this.#track(this.#deps.handlers.hello(this, frame));
  }

  #takeInventory(session: Session, frame: InventoryFrame): void {
    if (this.#state !== 'awaiting-inventory' || frame.epoch !== session.epoch) {
      this.#misplaced(frame);
      return;
    }
    this.#state = 'live';
    this.#cancelDeadline();
    void this.#track(this.#deps.handlers.inventory(this, session, frame));
  }

  #misplaced(frame: AgentFrame): void {
    this.#fail(`a ${frame.type} frame has no place in state ${this.#state}`);
  }

  #noteComplaint({ code, message }: ErrorFrame): void {
    this.#complaints += 1;
    if (this.#complaints > MAX_COMPLAINTS_LOGGED) return;
    this.#deps.log.warn({ server_uuid: this.serverUuid, code, message }, 'agent: did not understand');
  }

  async #track(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.#deps.log.warn({ server_uuid: this.serverUuid, err: error }, 'connection: a frame could not be dealt with');
      this.#fail('the instance could not deal with a frame');
    }
  }

  /** Unknown types are forgiven to a newer peer; to one of our age they are a defect, told but not fatal. */
  #misunderstood(error: FrameError): void {
    if (error.code !== 'type') this.#fail(error.message);
    else if (this.#peerVersion <= PROTOCOL_VERSION)
      this.send({ type: 'error', code: 'unknown-type', message: error.message });
  }

  #noInventory(session: Session): void {
    this.#deps.handlers.broken(this, session, 'no-inventory', 'no inventory came in time');
  }

  #fail(detail: string): void {
    if (this.#state === 'closed') return;
    this.#deps.log.warn(
      { server_uuid: this.serverUuid, peer: this.#stream.remoteAddress, state: this.#state, detail },
      'connection: protocol error',
    );
    const session = this.#session;
    if (session === undefined) this.send({ type: 'refuse', code: 'protocol', message: detail });
    else this.send({ type: 'error', code: 'protocol', message: detail });
    this.#close(CLOSE_PROTOCOL_ERROR, detail);
    if (session !== undefined) this.#deps.handlers.broken(this, session, 'protocol-error', detail);
  }

  /**
   * Nearly all that is ever sent, so it goes out as one write instead of ws's two. It may, for ws holds nothing back where
   * nothing is compressed: what it was given before is in the stream already, and what it is given later comes behind.
   */
  #answerHeartbeat(sequence: number): void {
    if (this.#takesMore() && this.#socket.readyState === WebSocket.OPEN)
      this.#stream.write(shortFrame(encodeHeartbeat(sequence)), 'latin1');
  }

  #takesMore(): boolean {
    if (!this.isOpen) return false;
    if (this.#socket.bufferedAmount <= MAX_BACKLOG_BYTES) return true;
    const session = this.#session;
    this.#socket.terminate();
    if (session !== undefined)
      this.#deps.handlers.broken(this, session, 'slow-reader', 'it does not read what is sent');
    return false;
  }

  #pinging(): Pings {
    this.#pings ??= new Pings({ socket: this.#socket, ticker: this.#deps.ticker });
    return this.#pings;
  }

  /** Lets go of it as well: a live connection keeps no deadline. */
  #cancelDeadline(): void {
    this.#deadline?.cancel();
    this.#deadline = undefined;
  }

  /** Before there is a session, what comes is bounded before it is put together to a frame. */
  #heardBytes(bytes: number): void {
    const session = this.#session;
    if (session === undefined) {
      this.#greetingBytes += bytes;
      if (this.#greetingBytes > MAX_GREETING_BYTES) this.#refuseFlood();
      return;
    }
    hear(session);
    session.heardAt = this.#deps.clock.now();
  }

  #refuseFlood(): void {
    this.#fail('a greeting is shorter');
    this.#socket.terminate();
  }

  #gone(): void {
    this.#isGone = true;
    this.#state = 'closed';
    this.#cancelDeadline();
    this.#reading?.cancel();
    this.#reading = undefined;
    this.#pings?.end();
    this.#deps.handlers.closed(this, this.#session);
  }
}

function ignore(): void {}
