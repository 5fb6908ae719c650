/**
 * The HTTP/1.1 client of all programs, over undici. undici speaks the protocol and keeps
 * connections; where they go and all time limits are decided here. A request goes to exactly its
 * target: redirects are answers, proxies of the environment are not used.
 *
 * A failure is an HttpError, which says whether the request may have arrived. Nothing is repeated
 * here: only the caller knows which requests may be.
 */
import type { Socket } from 'node:net';
import type { Dispatcher } from 'undici';
import { BoundedMap } from '../limiting/bounded-map.ts';
import type { Clock } from '../time/clock.ts';
import { type HttpTarget, hostAndPort } from './connect.ts';
import { HttpConnection, HttpConnectionPool } from './connections.ts';
import { HttpError } from './http-error.ts';
import { type HttpAnswer, PendingRequest } from './pending-request.ts';

export interface HttpRequest {
  target: HttpTarget;
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Path and query. */
  path: string;
  headers?: Readonly<Record<string, string>>;
  body?: string | undefined;
  /** Time limit from the connection to the head of the answer. */
  headMs?: number | undefined;
  /** Time limit for everything, to the end of the body. */
  totalMs?: number | undefined;
  signal?: AbortSignal | undefined;
  /**
   * Uses a kept connection, or keeps the new one. Only for requests that may be repeated: the other
   * side may be closing the connection. Targets with the same host, port and TLS names share
   * connections. Without it each request opens a connection of its own.
   */
  keepAlive?: boolean;
}

interface HttpClientDeps {
  clock: Clock;
  /** Time limit for a connection. Default 5 s. */
  connectMs?: number;
}

const CONNECT_MS = 5_000;
const MAX_TARGETS = 256;

export class HttpClient {
  readonly #clock: Clock;
  readonly #connectMs: number;
  readonly #kept = new BoundedMap<string, HttpConnectionPool>(MAX_TARGETS);
  readonly #sockets = new Set<Socket>();

  constructor({ clock, connectMs = CONNECT_MS }: HttpClientDeps) {
    this.#clock = clock;
    this.#connectMs = connectMs;
  }

  /** Resolves to the beginning of the answer, of whatever status. @throws HttpError */
  async request(request: HttpRequest): Promise<HttpAnswer> {
    const { target, signal } = request;
    if (signal?.aborted)
      throw new HttpError({
        target: hostAndPort(target),
        kind: 'given-up',
        reason: 'given up before it was sent',
        mayHaveArrived: false,
        cause: signal.reason,
      });
    return request.keepAlive === true ? this.#requestKept(request) : this.#requestOnce(request);
  }

  /** Closes all connections. Requests that still wait fail. */
  close(): void {
    for (const kept of this.#kept.values()) kept.close();
    this.#kept.clear();
    for (const socket of this.#sockets) socket.destroy(new Error('the client was closed'));
  }

  #requestOnce(request: HttpRequest): Promise<HttpAnswer> {
    const connection = this.#open(request.target);
    const pending = this.#pendingRequest(request, (failure) => failure && connection.destroy(failure));
    connection.send({ ...dispatchOf(request), reset: true }, pending);
    return pending.answer;
  }

  async #requestKept(request: HttpRequest): Promise<HttpAnswer> {
    const kept = this.#poolFor(request.target);
    let used: { connection: HttpConnection; opened: number } | undefined;
    const pending = this.#pendingRequest(request, (failure) => used && kept.release(used.connection, failure));
    kept.take((connection) => {
      if (pending.isOver) return false;
      used = { connection, opened: connection.opened };
      connection.send(dispatchOf(request), pending);
      return true;
    });
    try {
      return await pending.answer;
    } catch (error) {
      if (error instanceof HttpError)
        error.wasStale = error.kind === 'broken-off' && used?.connection.opened === used?.opened;
      throw error;
    }
  }

  #pendingRequest(
    { target, headMs, totalMs, signal }: HttpRequest,
    onOver: (failure?: HttpError) => void,
  ): PendingRequest {
    const connectMs = Math.min(this.#connectMs, headMs ?? Number.POSITIVE_INFINITY);
    return new PendingRequest({
      clock: this.#clock,
      target: hostAndPort(target),
      connectMs,
      headMs,
      totalMs,
      signal,
      onOver,
    });
  }

  #poolFor(target: HttpTarget): HttpConnectionPool {
    const key = [hostAndPort(target), target.localAddress, ...(target.tls?.names ?? [])].join(' ');
    const kept = this.#kept.get(key) ?? new HttpConnectionPool(() => this.#open(target));
    // The least recently used one is dropped.
    this.#kept.set(key, kept)?.close();
    return kept;
  }

  #open(target: HttpTarget): HttpConnection {
    const onSocket = (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    };
    return new HttpConnection({ clock: this.#clock, target, connectMs: this.#connectMs, onSocket });
  }
}

function dispatchOf({ target, method, path, headers, body }: HttpRequest): Dispatcher.DispatchOptions {
  const { name = target.host, port } = target;
  const all = { host: hostAndPort({ host: name, port }), ...headers };
  return { method, path, headers: all, ...(body !== undefined && { body }) };
}
