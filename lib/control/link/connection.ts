/**
 * The instance's side of one agent's WebSocket. Parses frames, limits how fast they are read, and
 * carries the session through its greeting. An invalid frame ends this connection with a reason and
 * affects nothing else.
 *
 *     greeting ──hello──▶ accepting ──accepted, welcomed──▶ awaiting-inventory ──inventory──▶ live
 *     any ──refused, silent, malformed frame, socket closed, superseded──▶ closed
 */
import { type RawData, WebSocket } from 'ws';
import { cutForLog, type LogFields, type Logger } from '../../platform/log.ts';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import type { HealthyTimer } from '../../platform/time/healthy-timer.ts';
import {
  HELLO_WITHIN_MS,
  INVENTORY_WITHIN_MS,
  MAX_GREETING_BYTES,
  MAX_GREETING_FRAMES,
  PROTOCOL_VERSION,
} from '../../protocol/limits.ts';
import { closeReason } from '../../protocol/link/close-reason.ts';
import { encodeFrame, encodeHeartbeat, FrameError, parseAgentFrame } from '../../protocol/link/codec.ts';
import type {
  AgentFrame,
  ErrorFrame,
  HelloFrame,
  InstanceAddress,
  InstanceFrame,
  InventoryFrame,
  SessionFrame,
} from '../../protocol/link/frames.ts';
import { ReadLimiter } from '../../protocol/link/read-limiter.ts';
import type { Session, SessionSocket } from '../roster/sessions/session.ts';
import { endSilence } from '../roster/sessions/silence.ts';
import type { HelloRefusal } from '../roster/status/authority-row.ts';
import type { AgentSocket, AgentStream } from './agent-socket.ts';
import { Pings } from './pings.ts';
import type { SenderQuota } from './sender-quotas.ts';
import { shortFrame } from './short-frame.ts';
import type { UnsentFrames } from './unsent-frames.ts';

type ConnectionState = 'greeting' | 'accepting' | 'awaiting-inventory' | 'live' | 'closed';

/** Calls of the connection to the link server. If one of them rejects, the connection ends. */
export interface ConnectionHandlers {
  onHello(connection: AgentConnection, hello: HelloFrame): Promise<void>;
  onInventory(connection: AgentConnection, session: Session, frame: InventoryFrame): Promise<void>;
  /**
   * A frame of a live session: task events and ends, sysinfo, status. `size`: characters of its
   * text.
   */
  onFrame(connection: AgentConnection, session: Session, frame: SessionFrame, size: number): void;
  /** The socket is closed; `session` is undefined if no session had begun. */
  onClosed(connection: AgentConnection, session: Session | undefined): void;
  /** The session must end because of something its peer did. */
  onBroken(
    connection: AgentConnection,
    session: Session,
    reason: 'protocol-error' | 'no-inventory' | 'slow-reader',
    detail: string,
  ): void;
  /** Much is unsent, and none of it has left since the previous heartbeat. */
  onBackedUp(connection: AgentConnection): void;
}

/** Counters shared by all connections of one instance, for its metrics. */
export interface LinkCounters {
  /** Frames refused because they are larger than their type allows. */
  framesRefused: number;
  /** How often reading from a connection paused because its peer had sent too much. */
  readsPaused: number;
}

export interface ConnectionParts {
  socket: AgentSocket;
  stream: AgentStream;
  serverUuid: string;
  /** The quota that the connection's input uses up. */
  quota: SenderQuota;
}

/** One object shared by all connections, which saves memory. */
export interface ConnectionDeps {
  handlers: ConnectionHandlers;
  /** Counts the agent's deadlines in healthy ticks. */
  healthyTimer: Pick<HealthyTimer, 'after'>;
  counters: LinkCounters;
  unsent: Pick<UnsentFrames, 'sent'>;
  /** Whether this address may cause another line of the log. */
  mayLog(address: string): boolean;
  clock: Clock;
  log: Logger;
}

/** A connection whose peer reads has at most this much unsent. */
const BACKED_UP_BYTES = 64 * 1024;
/** Limit for the bytes unsent to an agent that does not read. */
const MAX_BACKLOG_BYTES = 16 * 1024 * 1024;

/** More `error` frames of one peer are not logged: they would fill the disk. */
const MAX_ERRORS_LOGGED = 10;

const CLOSE_NORMAL = 1000;
const CLOSE_PROTOCOL_ERROR = 1002;

export class AgentConnection implements SessionSocket {
  serverUuid: string;
  /** The version that the agent's hello names; undefined before its session. */
  agentVersion: string | undefined;
  readonly quota: SenderQuota;
  readonly #deps: ConnectionDeps;
  readonly #socket: AgentSocket;
  readonly #stream: AgentStream;
  /** Kept, because a closed stream may have none. */
  readonly #address: string;
  #state: ConnectionState = 'greeting';
  #session: Session | undefined;
  #peerVersion = PROTOCOL_VERSION;
  #deadline: Timer | undefined;
  #errorFrames = 0;
  /** Created at the first probe; most connections never need one. */
  #pings: Pings | undefined;
  readonly #reads: ReadLimiter;
  #greetingBytes = 0;
  #sentBytes = 0;
  #greetingFrames = 0;
  #isGone = false;

  constructor({ socket, stream, serverUuid, quota }: ConnectionParts, deps: ConnectionDeps) {
    this.#deps = deps;
    this.#socket = socket;
    this.#stream = stream;
    this.#address = stream.remoteAddress ?? '';
    this.serverUuid = serverUuid;
    this.quota = quota;
    this.#reads = new ReadLimiter(socket, deps, quota);
    this.#deadline = deps.healthyTimer.after(HELLO_WITHIN_MS, () => this.#fail('no hello came in time'));
    stream.on('data', (chunk: Buffer) => this.#onBytes(chunk));
    socket.on('message', (data, isBinary) => this.#received(data, isBinary));
    // An error also closes the socket, and the close is handled.
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
    return this.#reads.isPaused;
  }

  get isBackedUp(): boolean {
    return this.unsentBytes > BACKED_UP_BYTES;
  }

  get unsentBytes(): number {
    return this.#socket.bufferedAmount;
  }

  /** The session is registered: greets the agent and waits for its inventory. */
  welcome(session: Session, frame: InstanceFrame): void {
    this.#session = session;
    // Keeps one copy of the same string.
    this.serverUuid = session.serverUuid;
    if (!this.isOpen) {
      this.#deps.handlers.onClosed(this, session);
      return;
    }
    this.#state = 'awaiting-inventory';
    this.#deadline = this.#deps.healthyTimer.after(INVENTORY_WITHIN_MS, () => this.#noInventory(session));
    this.send(frame);
  }

  mayLog(): boolean {
    return this.#deps.mayLog(this.#address);
  }

  /** Logs what the agent caused, unless its address has caused too many lines. */
  warn(fields: LogFields, message: string): void {
    if (this.mayLog()) this.#deps.log.warn({ server_uuid: this.serverUuid, ...fields }, message);
  }

  refuse(refusal: HelloRefusal, addresses: InstanceAddress[]): void {
    this.send({ type: 'refuse', ...refusal, addresses });
    this.terminate(refusal.message);
  }

  /** Queues the frame; false when the connection is closed or its peer no longer reads. */
  send(frame: InstanceFrame, text?: string): boolean {
    if (!this.#canSend()) return false;
    this.#socket.send(text ?? encodeFrame(frame));
    this.#deps.unsent.sent(this);
    return true;
  }

  /** Ends the connection immediately: a close frame would wait behind what is not read. */
  endSlowReader(): void {
    const session = this.#session;
    this.#socket.terminate();
    if (session !== undefined)
      this.#deps.handlers.onBroken(this, session, 'slow-reader', 'it does not read what is sent');
  }

  probe(): void {
    if (this.isOpen) this.#pinging().send();
  }

  answersProbe(withinMs: number): Promise<boolean> {
    return this.isOpen ? this.#pinging().ask(withinMs) : Promise.resolve(false);
  }

  askToLeave(reason: string, addresses: InstanceAddress[], withinMs?: number): void {
    this.send({ type: 'goaway', reason, addresses, ...(withinMs === undefined ? {} : { withinMs }) });
  }

  /** Sends the reason in the close frame, does not wait, and ignores all further input. */
  terminate(reason: string): void {
    this.#close(CLOSE_NORMAL, reason);
  }

  #close(code: number, reason: string): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#cancelDeadline();
    this.#socket.close(code, closeReason(reason));
    // A peer that is gone never answers the close frame, so the socket is closed after a second.
    this.#deadline = this.#deps.clock.after(1000, () => this.#socket.terminate());
  }

  #received(data: RawData, isBinary: boolean): void {
    if (this.#state === 'closed') return;
    if (isBinary || !Buffer.isBuffer(data)) return this.#fail('frames are text');
    const text = data.toString();
    try {
      this.#take(parseAgentFrame(text, this.#reads), text.length);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#misunderstood(error);
    }
  }

  #take(frame: AgentFrame, size: number): void {
    const session = this.#session;
    if (frame.type === 'hello') this.#onHello(frame);
    else if (session === undefined) this.#misplaced(frame);
    else if (frame.type === 'error') this.#onError(frame);
    else if (frame.type === 'heartbeat') this.#answerHeartbeat(frame.sequence);
    else if (frame.type === 'inventory') this.#onInventory(session, frame);
    else this.#deps.handlers.onFrame(this, session, frame, size);
  }

  #onHello(frame: HelloFrame): void {
    if (this.#state !== 'greeting') return this.#misplaced(frame);
    this.#state = 'accepting';
    this.#cancelDeadline();
    this.#peerVersion = frame.version;
    void this.#track(this.#deps.handlers.onHello(this, frame));
  }

  #onInventory(session: Session, frame: InventoryFrame): void {
    if (this.#state !== 'awaiting-inventory' || frame.epoch !== session.epoch) return this.#misplaced(frame);
    this.#state = 'live';
    this.#cancelDeadline();
    void this.#track(this.#deps.handlers.onInventory(this, session, frame));
  }

  #misplaced(frame: AgentFrame): void {
    this.#fail(`a ${frame.type} frame has no place in state ${this.#state}`);
  }

  #onError({ code, message }: ErrorFrame): void {
    this.#errorFrames += 1;
    if (this.#errorFrames > MAX_ERRORS_LOGGED) return;
    this.warn({ code, message: cutForLog(message) }, 'link: the agent did not understand a frame');
  }

  async #track(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.warn({ err: error }, 'link: a frame could not be handled');
      this.#fail('the instance could not handle a frame');
    }
  }

  /**
   * A newer peer may send unknown types. From a peer of our version they are an error, which is
   * reported but not fatal. The same applies to a frame of a live session that is too large: its
   * agent would send it again in each session.
   */
  #misunderstood(error: FrameError): void {
    if (error.code === 'limit') this.#refuseFrame(error);
    else if (error.code !== 'type') this.#fail(error.message);
    else if (this.#peerVersion <= PROTOCOL_VERSION)
      this.send({ type: 'error', code: 'unknown-type', message: error.message });
  }

  #refuseFrame({ message }: FrameError): void {
    this.#deps.counters.framesRefused += 1;
    if (this.#session === undefined) this.#fail(message);
    else this.send({ type: 'error', code: 'too-large', message });
  }

  #noInventory(session: Session): void {
    this.#deps.handlers.onBroken(this, session, 'no-inventory', 'no inventory came in time');
  }

  #fail(detail: string): void {
    if (this.#state === 'closed') return;
    this.warn({ peer: this.#address, state: this.#state, detail: cutForLog(detail) }, 'link: protocol error');
    const session = this.#session;
    if (session === undefined) this.send({ type: 'refuse', code: 'protocol', message: detail });
    else this.send({ type: 'error', code: 'protocol', message: detail });
    this.#close(CLOSE_PROTOCOL_ERROR, detail);
    if (session !== undefined) this.#deps.handlers.onBroken(this, session, 'protocol-error', detail);
  }

  /**
   * Nearly everything an instance sends is such an answer, so it goes out in one write instead of
   * ws's two. This keeps the order: without compression ws holds nothing back, so earlier frames
   * are already in the stream and later ones follow.
   */
  #answerHeartbeat(sequence: number): void {
    if (!this.#canSend() || this.#socket.readyState !== WebSocket.OPEN) return;
    if (this.isBackedUp && this.#standsStill()) this.#deps.handlers.onBackedUp(this);
    this.#stream.write(shortFrame(encodeHeartbeat(sequence)), 'latin1');
  }

  /** Whether no bytes have left since this was last asked. A slow connection is not a stuck one. */
  #standsStill(): boolean {
    const before = this.#sentBytes;
    this.#sentBytes = this.#stream.bytesWritten - this.unsentBytes;
    return this.#sentBytes <= before;
  }

  #canSend(): boolean {
    if (!this.isOpen) return false;
    if (this.unsentBytes <= MAX_BACKLOG_BYTES) return true;
    this.endSlowReader();
    return false;
  }

  #pinging(): Pings {
    this.#pings ??= new Pings({ socket: this.#socket, healthyTimer: this.#deps.healthyTimer });
    return this.#pings;
  }

  /** Also drops the timer: a live connection keeps no deadline. */
  #cancelDeadline(): void {
    this.#deadline?.cancel();
    this.#deadline = undefined;
  }

  #onBytes(chunk: Buffer): void {
    const now = this.#deps.clock.now();
    const session = this.#session;
    if (session === undefined) return this.#onGreetingBytes(chunk, now);
    this.#reads.consumeRead(chunk, now);
    endSilence(session);
    session.heardAt = now;
  }

  /** Limits what is received before ws assembles it into a frame. */
  #onGreetingBytes(chunk: Buffer, now: number): void {
    if (this.#state === 'closed') return;
    this.#greetingBytes += chunk.length;
    this.#greetingFrames += this.#reads.consumeRead(chunk, now, MAX_GREETING_FRAMES);
    if (this.#greetingBytes <= MAX_GREETING_BYTES && this.#greetingFrames <= MAX_GREETING_FRAMES) return;
    this.#fail('a greeting is shorter');
    this.#socket.terminate();
  }

  #gone(): void {
    this.#isGone = true;
    this.#state = 'closed';
    this.#cancelDeadline();
    this.#reads.end();
    this.#pings?.end();
    this.#deps.handlers.onClosed(this, this.#session);
  }
}

function ignore(): void {}
