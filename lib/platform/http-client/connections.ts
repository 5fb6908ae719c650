/**
 * Connections for requests, each used by one request at a time. A request that fails takes its
 * connection with it: undici would otherwise connect again for a request that was given up. Used by
 * `http-client.ts`.
 */
import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import type * as undici from 'undici';
import { type ConnectorDeps, connectorTo } from './connect.ts';
import type { PendingRequest } from './pending-request.ts';

// All of undici takes much longer to load than the part that is used.
const Client: typeof undici.Client = createRequire(import.meta.url)('undici/lib/dispatcher/client.js');

const MAX_HEAD_BYTES = 16 * 1024;
const MAX_CONNECTIONS = 64;
/** undici requires a URL but does not use it: the connector knows the target. */
const ORIGIN = 'http://target';
/** undici's own time limits are off. */
const LIMITS = { headersTimeout: 0, bodyTimeout: 0, maxHeaderSize: MAX_HEAD_BYTES };

export class HttpConnection {
  /** How often it was opened: again if it was closed between two requests. */
  opened = 0;
  readonly #client: undici.Client;
  #socket: Socket | undefined;

  constructor({ onSocket, ...deps }: ConnectorDeps) {
    const connect = connectorTo({
      ...deps,
      onSocket: (socket) => {
        this.opened += 1;
        this.#socket = socket;
        onSocket(socket);
      },
    });
    this.#client = new Client(ORIGIN, { ...LIMITS, connect });
  }

  send(request: undici.Dispatcher.DispatchOptions, pending: PendingRequest): void {
    this.#client.dispatch(request, pending);
  }

  destroy(error: Error): void {
    void this.#client.destroy(error);
    this.#socket?.destroy(error);
  }
}

/** Returns false if it does not need the connection any more. */
type Use = (connection: HttpConnection) => boolean;

/** The kept connections to one target. undici closes an idle one after some seconds. */
export class HttpConnectionPool {
  readonly #open: () => HttpConnection;
  readonly #idle: HttpConnection[] = [];
  readonly #waiting: Use[] = [];
  #count = 0;
  #isClosed = false;

  constructor(open: () => HttpConnection) {
    this.#open = open;
  }

  /** Calls `use` with a connection, immediately or when one is free. */
  take(use: Use): void {
    this.#waiting.push(use);
    this.#serve();
  }

  /** The request on the connection is over. */
  release(connection: HttpConnection, failure: Error | undefined): void {
    if (failure === undefined && !this.#isClosed) this.#idle.push(connection);
    else {
      this.#count -= 1;
      connection.destroy(failure ?? new Error('the client was closed'));
    }
    this.#serve();
  }

  /** Closes idle connections now and the others when their requests are over. */
  close(): void {
    this.#isClosed = true;
    for (const connection of this.#idle.splice(0)) this.release(connection, undefined);
  }

  #serve(): void {
    while (this.#waiting.length > 0 && (this.#idle.length > 0 || this.#count < MAX_CONNECTIONS)) {
      const connection = this.#idle.pop() ?? this.#opened();
      if (this.#waiting.shift()?.(connection) !== true) this.#idle.push(connection);
    }
  }

  #opened(): HttpConnection {
    this.#count += 1;
    return this.#open();
  }
}
