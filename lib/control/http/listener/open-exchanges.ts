/** The requests of a listener that are not answered yet, and the connections that they came on. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../platform/time/clock.ts';
import type { Exchange } from '../answer/exchange.ts';
import { CallerConnection } from './caller-connection.ts';

export class OpenExchanges {
  readonly #clock: Clock;
  readonly #exchanges = new Map<IncomingMessage, Exchange>();
  readonly #connections = new WeakMap<Duplex, CallerConnection>();
  readonly #empty = new AbortController();
  #isAwaited = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#exchanges.size;
  }

  get(request: IncomingMessage): Exchange | undefined {
    return this.#exchanges.get(request);
  }

  all(): Iterable<Exchange> {
    return this.#exchanges.values();
  }

  /** Undefined if no request has come on it, or only an upgrade. */
  on(socket: Duplex): CallerConnection | undefined {
    return this.#connections.get(socket);
  }

  /** Nothing is to be sent before the answer to a request that arrives now. */
  isFree(socket: Duplex): boolean {
    return this.on(socket)?.isFree !== false;
  }

  /**
   * False if the request must not be carried out: its connection is ending, or has too many
   * unanswered requests.
   */
  add(exchange: Exchange, response: ServerResponse): boolean {
    const { request } = exchange;
    const connection = this.#connectionOf(request);
    const { isEnding } = connection;
    if (!connection.add(exchange, response)) return false;
    this.#exchanges.set(request, exchange);
    response.once('close', () => {
      this.#exchanges.delete(request);
      if (this.#isAwaited && this.#exchanges.size === 0) this.#empty.abort();
    });
    if (!isEnding) return true;
    connection.end();
    exchange.dropBody({ isCarriedOut: false });
    return false;
  }

  /** Aborts when the last of them has been answered. */
  whenEmpty(): AbortSignal {
    this.#isAwaited = true;
    return this.#empty.signal;
  }

  #connectionOf({ socket }: IncomingMessage): CallerConnection {
    const known = this.#connections.get(socket);
    if (known !== undefined) return known;
    const connection = new CallerConnection(socket, this.#clock);
    this.#connections.set(socket, connection);
    return connection;
  }
}
