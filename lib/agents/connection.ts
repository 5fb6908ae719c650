/**
 * One WebSocket of one agent, as the instance sees it. Parses what comes, bounds what is under way, and carries the
 * session through its greeting. Frames that make no sense end this connection, with a reason, and touch nothing else.
 *
 *     greeting ──hello──▶ accepting ──accepted, welcome sent──▶ awaiting-inventory ──inventory──▶ live
 *        any ──refused, silent, malformed frame, socket closed, superseded──▶ closed
 */
import type { Duplex } from 'node:stream';
import type { RawData, WebSocket } from 'ws';
import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock, Timer } from '../ports/clock.ts';
import type { Refusal } from '../roster/roster.ts';
import type { Session, SessionSocket } from '../roster/session.ts';
import { hear } from '../roster/silence.ts';
import { encodeFrame, encodeHeartbeat, FrameError, parseAgentFrame } from '../wire/codec.ts';
import type { AgentFrame, ErrorFrame, HelloFrame, InstanceFrame, InventoryFrame } from '../wire/frames.ts';
import { HELLO_WITHIN_MS, INVENTORY_WITHIN_MS, MAX_GREETING_BYTES, PROTOCOL_VERSION } from '../wire/limits.ts';

export type ConnectionState = 'greeting' | 'accepting' | 'awaiting-inventory' | 'live' | 'closed';

/** What the connection asks of the link server. A rejection of any of them ends the connection. */
export interface ConnectionHandlers {
  hello(connection: Connection, hello: HelloFrame): Promise<void>;
  inventory(connection: Connection, session: Session, frame: InventoryFrame): Promise<void>;
  /** A frame that belongs to a live session: task events and ends, sysinfo, status. */
  frame(connection: Connection, session: Session, frame: AgentFrame): Promise<void>;
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

export interface ConnectionDeps {
  socket: WebSocket;
  stream: Duplex;
  serverUuid: string;
  /** The agent's address, for logs. */
  peer: string;
  handlers: ConnectionHandlers;
  clock: Clock;
  log: Logger;
}

/** Frames of one connection being worked on at once; the socket is not read while it is at this bound. */
const MAX_UNDER_WAY = 64;
/** Bytes waiting to be sent to an agent that does not read. */
const MAX_BACKLOG_BYTES = 16 * 1024 * 1024;

/** What one connection's peer did not understand is logged this often; more tells nothing new, and fills the disk. */
const MAX_COMPLAINTS_LOGGED = 10;

const CLOSE_NORMAL = 1000;
const CLOSE_PROTOCOL_ERROR = 1002;

export class Connection implements SessionSocket {
  readonly serverUuid: string;
  readonly peer: string;
  readonly #deps: ConnectionDeps;
  readonly #socket: WebSocket;
  #state: ConnectionState = 'greeting';
  #session: Session | undefined;
  #peerVersion = PROTOCOL_VERSION;
  #deadline: Timer | undefined;
  #underWay = 0;
  #complaints = 0;
  #probeWaiters: ((isAlive: boolean) => void)[] = [];
  #isGone = false;

  constructor(deps: ConnectionDeps) {
    this.#deps = deps;
    this.#socket = deps.socket;
    this.serverUuid = deps.serverUuid;
    this.peer = deps.peer;
    this.#deadline = deps.clock.after(HELLO_WITHIN_MS, () => this.#fail('no hello came in time'));
    deps.stream.on('data', () => this.#heardBytes());
    this.#socket.on('message', (data, isBinary) => this.#received(data, isBinary));
    this.#socket.on('pong', () => this.#answered(true));
    this.#socket.on('error', (error) => deps.log.debug({ reason: messageOf(error) }, 'connection: socket error'));
    this.#socket.on('close', () => this.#gone());
  }

  get state(): ConnectionState {
    return this.#state;
  }

  get isOpen(): boolean {
    return !this.#isGone && this.#state !== 'closed';
  }

  /** The session is registered: greet the agent and await its inventory. */
  welcome(session: Session, frame: InstanceFrame): void {
    this.#session = session;
    if (!this.isOpen) {
      this.#deps.handlers.closed(this, session);
      return;
    }
    this.#state = 'awaiting-inventory';
    this.#deadline = this.#deps.clock.after(INVENTORY_WITHIN_MS, () => this.#noInventory(session));
    this.send(frame);
  }

  refuse(refusal: Refusal, addresses: { uuid: string; host: string; port: number }[]): void {
    this.send({ type: 'refuse', ...refusal, addresses });
    this.terminate(refusal.message);
  }

  /** Queues the frame; false when the connection is closed or its peer does not take bytes any more. */
  send(frame: InstanceFrame): boolean {
    return this.#sendText(encodeFrame(frame));
  }

  probe(): void {
    if (this.isOpen) this.#socket.ping();
  }

  answersProbe(withinMs: number): Promise<boolean> {
    if (!this.isOpen) return Promise.resolve(false);
    return new Promise((resolve) => {
      const timer = this.#deps.clock.after(withinMs, () => resolve(false));
      this.#probeWaiters.push((isAlive) => {
        timer.cancel();
        resolve(isAlive);
      });
      this.probe();
    });
  }

  askToLeave(reason: string, addresses: { uuid: string; host: string; port: number }[] = []): void {
    this.send({ type: 'goaway', reason, addresses });
  }

  /** Says why in the close frame, waits for nobody, and is closed for whatever still comes in. */
  terminate(reason: string): void {
    this.#close(CLOSE_NORMAL, reason);
  }

  #close(code: number, reason: string): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#deadline?.cancel();
    this.#socket.close(code, reason.slice(0, 100));
    // A peer that is gone never answers the close frame; the socket is not kept for it.
    this.#deadline = this.#deps.clock.after(1000, () => this.#socket.terminate());
  }

  #received(data: RawData, isBinary: boolean): void {
    if (this.#state === 'closed') return;
    const isGreeting = this.#session === undefined;
    if (isBinary || !Buffer.isBuffer(data)) this.#fail('frames are text');
    else if (isGreeting && data.length > MAX_GREETING_BYTES) this.#fail('a greeting is shorter');
    else this.#parse(data.toString());
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
    if (frame.type === 'heartbeat') {
      if (this.#session !== undefined) this.#sendText(encodeHeartbeat(frame.sequence));
    } else if (frame.type === 'error') {
      this.#noteComplaint(frame);
    } else {
      const work = this.#workFor(frame);
      if (work === undefined) this.#fail(`a ${frame.type} frame has no place in state ${this.#state}`);
      else void this.#track(work);
    }
  }

  #noteComplaint({ code, message }: ErrorFrame): void {
    this.#complaints += 1;
    if (this.#complaints > MAX_COMPLAINTS_LOGGED) return;
    this.#deps.log.warn({ server_uuid: this.serverUuid, code, message }, 'agent: did not understand');
  }

  #workFor(frame: AgentFrame): Promise<void> | undefined {
    const { handlers } = this.#deps;
    if (frame.type === 'hello') {
      if (this.#state !== 'greeting') return undefined;
      this.#state = 'accepting';
      this.#deadline?.cancel();
      this.#peerVersion = frame.version;
      return handlers.hello(this, frame);
    }
    const session = this.#session;
    if (session === undefined) return undefined;
    if (frame.type !== 'inventory') return handlers.frame(this, session, frame);
    if (this.#state !== 'awaiting-inventory' || frame.epoch !== session.epoch) return undefined;
    this.#state = 'live';
    this.#deadline?.cancel();
    return handlers.inventory(this, session, frame);
  }

  async #track(work: Promise<void>): Promise<void> {
    this.#underWay += 1;
    if (this.#underWay === MAX_UNDER_WAY) this.#socket.pause();
    try {
      await work;
    } catch (error) {
      this.#deps.log.warn({ server_uuid: this.serverUuid, err: error }, 'connection: a frame could not be dealt with');
      this.#fail('the instance could not deal with a frame');
    } finally {
      this.#underWay -= 1;
      if (this.#underWay === MAX_UNDER_WAY - 1 && !this.#isGone) this.#socket.resume();
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
      { server_uuid: this.serverUuid, peer: this.peer, state: this.#state, detail },
      'connection: protocol error',
    );
    const session = this.#session;
    if (session === undefined) this.send({ type: 'refuse', code: 'protocol', message: detail });
    else this.send({ type: 'error', code: 'protocol', message: detail });
    this.#close(CLOSE_PROTOCOL_ERROR, detail);
    if (session !== undefined) this.#deps.handlers.broken(this, session, 'protocol-error', detail);
  }

  #sendText(text: string): boolean {
    if (!this.isOpen) return false;
    if (this.#socket.bufferedAmount > MAX_BACKLOG_BYTES) {
      const session = this.#session;
      this.#socket.terminate();
      if (session !== undefined)
        this.#deps.handlers.broken(this, session, 'slow-reader', 'it does not read what is sent');
      return false;
    }
    this.#socket.send(text);
    return true;
  }

  #heardBytes(): void {
    const session = this.#session;
    if (session === undefined) return;
    hear(session.silence);
    session.heardAt = this.#deps.clock.now();
  }

  #answered(isAlive: boolean): void {
    const waiters = this.#probeWaiters;
    if (waiters.length === 0) return;
    this.#probeWaiters = [];
    for (const waiter of waiters) waiter(isAlive);
  }

  #gone(): void {
    this.#isGone = true;
    this.#state = 'closed';
    this.#deadline?.cancel();
    this.#answered(false);
    this.#deps.handlers.closed(this, this.#session);
  }
}
