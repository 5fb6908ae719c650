/**
 * A WebSocket of a stream, at any of its ends. Whoever sends more than the peer reads is told to
 * pause, so that a stream holds little memory however slow its reader is. Closing loses nothing
 * that was sent before.
 */
import { WebSocket } from 'ws';
import { closeReason } from '../link/close-reason.ts';

interface StreamSocketEvents {
  message(message: Buffer, isBinary: boolean): void;
  /** Less is unsent than `send` complained about. */
  drained(): void;
  /** Emitted once, as the last event. */
  closed(reason: string): void;
}

/** Unsent bytes above which the sender should pause, and below which it may go on. */
const HIGH_BYTES = 256 * 1024;
const LOW_BYTES = 64 * 1024;
const BINARY = { binary: true };
/** Of silence, after which the kernel asks the peer's machine whether it is there. */
const KEEPALIVE_MS = 10_000;

export class StreamSocket {
  readonly #socket: WebSocket;
  readonly #events: StreamSocketEvents;
  #unsent = 0;
  #isFull = false;
  #isOver = false;
  #closing: { code: number; reason: string } | undefined;

  constructor(socket: WebSocket, events: StreamSocketEvents) {
    this.#socket = socket;
    this.#events = events;
    let failure: string | undefined;
    socket.on('message', (data, isBinary) => {
      if (!this.#isOver) events.message(data as Buffer, isBinary);
    });
    socket.on('error', (error) => {
      failure ??= error.message;
    });
    socket.on('close', (code, reason) => {
      if (this.#isOver) return;
      this.#isOver = true;
      events.closed(failure ?? `closed with ${code} ${reason}`.trimEnd());
    });
  }

  /** Returns false if the caller should wait for `drained`. */
  send(message: Buffer): boolean {
    if (this.#isOver || this.#closing !== undefined || this.#socket.readyState !== WebSocket.OPEN) return true;
    this.#unsent += message.length;
    this.#socket.send(message, BINARY, () => this.#sent(message.length));
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

  /** Emits nothing more. */
  terminate(): void {
    this.#isOver = true;
    this.#socket.terminate();
  }

  #sent(bytes: number): void {
    this.#unsent -= bytes;
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
