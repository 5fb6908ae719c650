/**
 * The listening sockets of an instance's one address. Node accepts one connection per socket in
 * each turn of its event loop, and with thousands of agents a turn is long. With a single socket,
 * agents that connected concurrently were accepted so slowly that they gave up and connected again.
 * So there are several sockets, and the system distributes connections among them (SO_REUSEPORT).
 * Owns them and the number of connections; passes connections to the HTTP server. Where the system
 * cannot do that (macOS, illumos) there is one socket.
 */
import type { Server as HttpServer } from 'node:http';
import type { Server as HttpsServer } from 'node:https';
import { type AddressInfo, createServer, type Server, type Socket, Server as TcpServer } from 'node:net';
import { LogLimiter, ONE_A_MINUTE } from '../../../platform/limiting/log-limiter.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { Certificates } from './certificates.ts';
import { Handshakes, TLS_OPTIONS } from './handshakes.ts';

interface ListenSocketsDeps {
  http: HttpServer;
  host: string;
  /** 0: any free port. */
  port: number;
  /** Above it, new connections are cut off: there is no room for an answer either. */
  maxConnections: number;
  /** TLS handshakes of one source; 0: no limit. */
  handshakesPerSecond: number;
  /** Already loaded; with them `http` is a TLS server. */
  certificates?: Certificates | undefined;
  clock: Clock;
  log: Logger;
}

/**
 * Measured with 1, 8 and 24: docs/performance-costs.md, "When an instance dies". An idle socket
 * costs nothing.
 */
const SOCKETS = 16;
/** Connections that the system accepts before this process does. */
const BACKLOG = 8192;
const SHARED = { reusePort: true, backlog: BACKLOG / SOCKETS };
/** Maximum time to close, even if connections keep arriving. */
const CLOSES_WITHIN_MS = 1000;
/** Two turns of an event loop with little to do. */
const QUICK_TURNS_MS = 1;

export class ListenSockets {
  readonly #deps: ListenSocketsDeps;
  readonly #servers: Server[] = [];
  readonly #handshakes: Handshakes | undefined;
  #open = 0;
  #taken = 0;
  #cut = 0;
  readonly #warnings: LogLimiter;
  #isClosing = false;

  constructor(deps: ListenSocketsDeps) {
    this.#deps = deps;
    this.#warnings = new LogLimiter(deps, ONE_A_MINUTE);
    deps.http.on('connection', (socket) => this.#take(socket));
    if (deps.certificates) this.#handshakes = new Handshakes(deps.http as HttpsServer, deps);
  }

  /** Connections taken so far. */
  get taken(): number {
    return this.#taken;
  }

  /** Whether the socket is closing; it closes when no connection is arriving. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  /** Connections cut off above the limit, so far. */
  get cut(): number {
    return this.#cut;
  }

  /** TLS handshakes in progress, and the number that failed so far. */
  get handshakes(): number {
    return this.#handshakes?.inProgress ?? 0;
  }

  get failedHandshakes(): number {
    return this.#handshakes?.failed ?? 0;
  }

  /** Connections closed before their handshake, because their source had begun too many. */
  get limitedHandshakes(): number {
    return this.#handshakes?.limited ?? 0;
  }

  /** Returns the port. @throws the system's error, e.g. if the port is in use */
  async open(): Promise<number> {
    const { certificates, http } = this.#deps;
    certificates?.start(({ cert, key }) => (http as HttpsServer).setSecureContext({ ...TLS_OPTIONS, cert, key }));
    try {
      return await this.#openAll();
    } catch (error) {
      await certificates?.stop();
      this.close();
      throw error;
    }
  }

  async #openAll(): Promise<number> {
    const { http, port } = this.#deps;
    // SO_REUSEPORT would let another process listen on the same address, so the address is first
    // opened without it.
    if (port !== 0) await closed(await this.#listen(createServer(), { port, backlog: 1 }));
    try {
      this.#servers.push(await this.#listen(http, { port, ...SHARED }));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOTSUP') throw error;
      this.#servers.push(await this.#listen(http, { port, backlog: BACKLOG }));
      return portOf(http);
    }
    while (this.#servers.length < SOCKETS) await this.#addSocket();
    return portOf(http);
  }

  /** Closes once no connection is arriving. */
  closeWhenIdle(): void {
    this.#isClosing = true;
    this.#closeAtQuiet(this.#taken, this.#deps.clock.now() + CLOSES_WITHIN_MS);
  }

  /**
   * Closing resets connections that the system has accepted and Node has not; Node takes few a
   * turn. A long turn proves nothing: on a busy machine callers connect while this process waits.
   */
  #closeAtQuiet(seen: number, deadline: number): void {
    const { clock } = this.#deps;
    const beganAt = clock.now();
    clock.afterPoll(() =>
      clock.afterPoll(() => {
        const now = clock.now();
        const isQuiet = this.#taken === seen && now - beganAt <= QUICK_TURNS_MS;
        if (isQuiet || now >= deadline) this.close();
        else this.#closeAtQuiet(this.#taken, deadline);
      }),
    );
  }

  /** Accepts no new connections. Existing ones stay. */
  close(): void {
    this.#isClosing = false;
    // Closed as TCP servers: HTTP's own close would cut off callers that are about to send another
    // request on a keep-alive connection.
    for (const server of this.#servers.splice(0)) TcpServer.prototype.close.call(server);
  }

  cutHandshakes(): void {
    this.#handshakes?.stop();
  }

  async #addSocket(): Promise<void> {
    const { http } = this.#deps;
    // The HTTP server's own sockets have the same setting: a TLS connection that its caller has
    // closed must not stay half open.
    const { allowHalfOpen } = http as unknown as { allowHalfOpen: boolean };
    const server = createServer({ allowHalfOpen, noDelay: true }, (socket) => http.emit('connection', socket));
    this.#servers.push(await this.#listen(server, { port: portOf(http), ...SHARED }));
    server.on('error', (error) => http.emit('error', error));
  }

  async #listen(server: Server, options: { port: number; backlog: number; reusePort?: boolean }): Promise<Server> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    server.once('error', reject);
    server.listen({ host: this.#deps.host, ...options }, resolve);
    await promise;
    server.off('error', reject);
    return server;
  }

  #take(socket: Socket): void {
    this.#taken += 1;
    if (this.#open >= this.#deps.maxConnections) return this.#cutOff(socket);
    this.#open += 1;
    socket.on('close', this.#left);
  }

  #cutOff(socket: Socket): void {
    socket.destroy();
    this.#cut += 1;
    this.#warnings.warn(
      { max_connections: this.#deps.maxConnections, cut: this.#cut },
      'http: the limit of connections is reached; new connections are closed',
    );
  }

  /** One function for all connections. */
  readonly #left = () => {
    this.#open -= 1;
  };
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => void server.close(() => resolve()));
}
