/**
 * A WebSocket of a stream, for the caller, the instance and the agent. A sender that is faster than
 * its peer is told to pause, so a stream uses little memory however slow its reader is. Closing
 * loses nothing that was sent before.
 */
import { WebSocket } from 'ws';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import { closeReason } from '../link/close-reason.ts';
import { MAX_STREAM_MESSAGE } from './stream.ts';

export interface StreamSocketEvents {
  message(message: Buffer, isBinary: boolean): void;
  /** The unsent bytes fell below LOW_BYTES: the sender may continue. */
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
 * Pings detect a dead peer while this end does not read. The second write after the end of the
 * peer's process fails.
 */
const PING_MS = 5_000;
/**
 * A paused reader finds all pings at once when it continues, and ws ends a connection with 60 of
 * them. The intervals after the first ten pings therefore grow, and the 50th ping, two days later,
 * is the last.
 */
const PROMPT_PINGS = 10;
const LATER_BY = 1.25;
const MAX_UNANSWERED = 50;
/** RFC 6455, section 7.4.1. */
const POLICY_VIOLATION = 1008;
/** How long to wait for the close frame once everything is sent. */
const LEAVE_WITHIN_MS = 30_000;
/**
 * How long a reader that has stopped may take to read the rest after the end. Then the rest is
 * lost.
 */
export const CLOSE_WITHIN_MS = 600_000;
/** Options of every WebSocket that carries a stream. */
export const STREAM_SOCKET = {
  perMessageDeflate: false,
  maxPayload: MAX_STREAM_MESSAGE,
  // After this time ws drops an unclosed connection together with unsent data. The ends of a stream
  // close it earlier.
  closeTimeout: 2 * CLOSE_WITHIN_MS,
  // A peer may ping every five seconds while its pings stay unread. ws ends a connection with more
  // than this number.
  maxPendingAutoPongs: 2_000,
} as const;
/** Idle time before the first TCP keepalive probe. */
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

/** Enables TCP keepalive on a socket that carries a stream. */
export function keepAlive(socket: { setKeepAlive?(enable: boolean, delayMs: number): unknown }): void {
  socket.setKeepAlive?.(true, KEEPALIVE_MS);
}
