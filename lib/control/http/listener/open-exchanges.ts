/** The requests of a listener that are not answered yet. Limits how many of a connection there are. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Exchange } from '../reply/exchange.ts';

/**
 * Per connection, far above what any client sends ahead. With more, replies queue behind a wait,
 * Node stops reading, and a disconnect goes unnoticed.
 */
const MAX_UNANSWERED = 16;
/** Longer than the longest wait, so its answer is sent before the cut. */
const SILENT_SOCKET_MS = 3_660_000;

export class OpenExchanges {
  readonly #exchanges = new Map<IncomingMessage, Exchange>();
  readonly #unanswered = new WeakMap<Socket, number>();
  /** The latest of each connection. */
  readonly #refused = new WeakMap<Duplex, Exchange>();
  readonly #empty = new AbortController();
  #isAwaited = false;

  get size(): number {
    return this.#exchanges.size;
  }

  get(request: IncomingMessage): Exchange | undefined {
    return this.#exchanges.get(request);
  }

  all(): Iterable<Exchange> {
    return this.#exchanges.values();
  }

  /** False if this connection has sent too many requests ahead; it is cut off. */
  add(exchange: Exchange, response: ServerResponse): boolean {
    const { request } = exchange;
    const { socket } = request;
    const unanswered = (this.#unanswered.get(socket) ?? 0) + 1;
    if (unanswered > MAX_UNANSWERED) {
      socket.destroy();
      return false;
    }
    this.#unanswered.set(socket, unanswered);
    // Not for all the server's sockets: a link would keep the timer without need.
    socket.setTimeout(SILENT_SOCKET_MS);
    this.#exchanges.set(request, exchange);
    response.once('close', () => {
      this.#unanswered.set(socket, (this.#unanswered.get(socket) ?? 1) - 1);
      this.#exchanges.delete(request);
      if (this.#isAwaited && this.#exchanges.size === 0) this.#empty.abort();
    });
    return true;
  }

  /** A request that is refused for its head alone; it does not count as unanswered. */
  addRefused(exchange: Exchange): void {
    this.#refused.set(exchange.request.socket, exchange);
  }

  refusedOn(socket: Duplex): Exchange | undefined {
    return this.#refused.get(socket);
  }

  /** False while others wait on this connection: Node would close it before their answers. */
  isLastOn(socket: Socket): boolean {
    return (this.#unanswered.get(socket) ?? 0) <= 1;
  }

  /** Aborts when the last of them has been answered. */
  whenEmpty(): AbortSignal {
    this.#isAwaited = true;
    return this.#empty.signal;
  }
}
