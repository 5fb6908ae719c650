/**
 * A WebSocket of a stream, at any of its ends. Whoever sends more than the peer reads is told to
 * pause, so that a stream holds little memory however slow its reader is. Closing loses nothing
 * that was sent before.
 */
import { WebSocket } from 'ws';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import { closeReason } from '../link/close-reason.ts';
import { MAX_STREAM_MESSAGE } from './stream.ts';

export interface StreamSocketEvents {
  message(message: Buffer, isBinary: boolean): void;
  /** Less is unsent than `send` complained about. */
  drained(): void;
  /** Emitted once, as the last event. */
  closed(reason: string): void;
}

/** Unsent bytes above which the sender should pause, and below which it may go on. */
const HIGH_BYTES = 256 * 1024;
const LOW_BYTES = 64 * 1024;
/** What a message costs in memory besides its bytes. */
const MESSAGE_COST = 512;
const BINARY = { binary: true };
/**
 * A socket that is not read does not see that its peer has gone; a write does, the second one after
 * the end of the peer's process.
 */
const PING_MS = 5_000;
/**
 * A reader that has paused finds all pings together, and ws breaks a connection on which there are 60.
 * So those after the first ten come ever later, and none after 50, two days later.
 */
const PROMPT_PINGS = 10;
const LATER_BY = 1.25;
const MAX_UNANSWERED = 50;
/** RFC 6455, section 7.4.1. */
const POLICY_VIOLATION = 1008;
/** For a peer that is owed nothing more to answer that the connection is closed. */
const LEAVE_WITHIN_MS = 30_000;
/** For a reader that has stopped, after the end of its stream; then what it has not taken is lost. */
export const CLOSE_WITHIN_MS = 600_000;
/** Of every WebSocket that carries a stream. */
export const STREAM_SOCKET = {
  perMessageDeflate: false,
  maxPayload: MAX_STREAM_MESSAGE,
  // ws drops a connection that is not closed by then, with what was sent. The ends of a stream decide earlier.
  closeTimeout: 2 * CLOSE_WITHIN_MS,
  // A peer may ping every five seconds, however long its pings are unread; ws breaks it above this number.
  maxPendingAutoPongs: 2_000,
} as const;
/** Of silence, after which the kernel asks the peer's machine whether it is there. */
const KEEPALIVE_MS = 10_000;

export class StreamSocket {
  readonly #socket: WebSocket;
  readonly #events: StreamSocketEvents;
  #unsent = 0;
  #isFull = false;
  #isOver = false;
  #isRefused = false;
  #closing: { code: number; reason: string } | undefined;
  #pinging: Timer | undefined;
  #unanswered = 0;
  #leaving: Timer | undefined;
  readonly #clock: Clock;

  constructor(socket: WebSocket, clock: Clock, events: StreamSocketEvents) {
    this.#clock = clock;
    this.#socket = socket;
    this.#events = events;
    let failure: string | undefined;
    socket.on('message', (data, isBinary) => {
      if (this.#isOver || this.#isRefused) return;
      if ((data as Buffer).length === 0) return this.refuse('a message is empty');
      events.message(data as Buffer, isBinary);
    });
    socket.on('pong', () => {
      const wasLate = this.#unanswered > PROMPT_PINGS;
      this.#unanswered = 0;
      if (wasLate) this.#ping();
    });
    socket.on('error', (error) => {
      failure ??= error.message;
    });
    socket.on('close', (code, reason) => {
      this.#pinging?.cancel();
      this.#leaving?.cancel();
      if (this.#isOver) return;
      this.#isOver = true;
      events.closed(failure ?? `closed with ${code} ${reason}`.trimEnd());
    });
    this.#ping();
  }

  #ping(): void {
    this.#pinging?.cancel();
    const pauseMs = PING_MS * LATER_BY ** Math.max(this.#unanswered - PROMPT_PINGS, 0);
    this.#pinging = this.#clock.after(pauseMs, () => {
      if (this.#socket.readyState !== WebSocket.OPEN) return;
      this.#socket.ping();
      this.#unanswered += 1;
      if (this.#unanswered < MAX_UNANSWERED) this.#ping();
    });
  }

  /** Returns false if the caller should wait for `drained`. */
  send(message: Buffer): boolean {
    if (this.#isOver || this.#closing !== undefined || this.#socket.readyState !== WebSocket.OPEN) return true;
    const cost = message.length + MESSAGE_COST;
    this.#unsent += cost;
    this.#socket.send(message, BINARY, () => this.#sent(cost));
    if (this.#unsent > HIGH_BYTES) this.#isFull = true;
    return !this.#isFull;
  }

  sendText(text: string): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(text);
  }

  /** Stops reading from the peer, which then has to stop sending. */
  pause(): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.pause();
  }

  resume(): void {
    if (this.#socket.isPaused) this.#socket.resume();
  }

  /** Closes the connection when the peer has taken what was sent; until then it may break. */
  closeWhenSent(code: number, reason: string): void {
    this.#closing ??= { code, reason: closeReason(reason) };
    this.resume();
    if (this.#unsent === 0) this.#close();
  }

  /** Closes it: immediately if the peer has not taken everything, and else with a reason. */
  leave(code: number, reason: string): void {
    if (this.#unsent > 0) return this.#socket.terminate();
    this.closeWhenSent(code, reason);
    this.#terminateLater();
  }

  /** Closes it because the peer has broken the protocol; emits no more of its messages. */
  refuse(reason: string): void {
    this.#isRefused = true;
    this.closeWhenSent(POLICY_VIOLATION, reason);
    this.#terminateLater();
  }

  /** Emits nothing more. */
  terminate(): void {
    this.#isOver = true;
    this.#pinging?.cancel();
    this.#leaving?.cancel();
    this.#socket.terminate();
  }

  #terminateLater(): void {
    this.#leaving ??= this.#clock.after(LEAVE_WITHIN_MS, () => this.#socket.terminate());
  }

  #sent(cost: number): void {
    this.#unsent -= cost;
    if (this.#isOver) return;
    if (this.#unsent === 0 && this.#closing !== undefined) return this.#close();
    if (!this.#isFull || this.#unsent > LOW_BYTES) return;
    this.#isFull = false;
    this.#events.drained();
  }

  #close(): void {
    if (this.#closing !== undefined) this.#socket.close(this.#closing.code, this.#closing.reason);
  }
}

/** Of a socket that carries a stream. */
export function keepAlive(socket: { setKeepAlive?(enable: boolean, delayMs: number): unknown }): void {
  socket.setKeepAlive?.(true, KEEPALIVE_MS);
}
