/**
 * TLS handshakes in progress at the listener. One address may begin a limited number in a second;
 * further connections are closed before the handshake, which costs ten times as much. Each ends
 * within a limit, however slowly its bytes arrive: Node's own limit counts from the last byte.
 * Failed ones are cut off. The log gives the reasons a bounded number of times. Used by the
 * listener.
 */
import { constants } from 'node:crypto';
import type { Server } from 'node:https';
import type { Socket } from 'node:net';
import { LogLimiter, ONE_A_MINUTE } from '../../../platform/limiting/log-limiter.ts';
import { RateLimiters } from '../../../platform/limiting/rate-limiter.ts';
import type { Logger } from '../../../platform/log.ts';
import { normalizeAddress, sourceOf } from '../../../platform/network/networks.ts';
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import { connectionKey } from './connection-key.ts';

/**
 * TLS 1.2 at least, and one handshake for each connection: with renegotiation a caller could have
 * several, at our cost.
 */
export const TLS_OPTIONS = { minVersion: 'TLSv1.2', secureOptions: constants.SSL_OP_NO_RENEGOTIATION } as const;
/**
 * The burst is what the rate allows in this time. With the defaults it is as large as that of
 * `requestsPerSecond`.
 */
const BURST_S = 5;
/** Thousands of agents may connect concurrently, and share one core. */
const HANDSHAKE_WITHIN_MS = 10_000;
/**
 * Disconnects before the end of a handshake that are not errors: port checks do this all the time.
 */
const DISCONNECTED = ['ECONNRESET', 'EPIPE', 'ETIMEDOUT'];

interface HandshakesDeps {
  /** Limit for each source address; 0: no limit. */
  handshakesPerSecond: number;
  clock: Clock;
  log: Logger;
}

export class Handshakes {
  readonly #clock: Clock;
  readonly #warnings: LogLimiter;
  readonly #limitWarnings: LogLimiter;
  readonly #limiters: RateLimiters | undefined;
  readonly #inProgress = new Map<string, { socket: Socket; timer: Timer }>();
  #failed = 0;
  #limited = 0;

  constructor(server: Server, deps: HandshakesDeps) {
    const { handshakesPerSecond: perSecond, clock } = deps;
    this.#clock = clock;
    this.#warnings = new LogLimiter(deps);
    this.#limitWarnings = new LogLimiter(deps, ONE_A_MINUTE);
    this.#limiters = RateLimiters.ifLimited({ perSecond, burst: perSecond * BURST_S });
    server.on('connection', (socket) => this.#begin(socket as Socket));
    server.on('secureConnection', (socket) => this.#end(connectionKey(socket)));
    // Node would pass these errors to the handler of bad requests, which cannot answer before the
    // handshake.
    server.removeAllListeners('tlsClientError');
    server.on('tlsClientError', (error: NodeJS.ErrnoException, socket) => {
      const { remoteAddress } = socket;
      socket.destroy();
      if (!DISCONNECTED.includes(error.code ?? '')) this.#complain(remoteAddress, error.code ?? error.message);
    });
  }

  get inProgress(): number {
    return this.#inProgress.size;
  }

  /** Handshakes that failed since the start, without those that the caller merely abandoned. */
  get failed(): number {
    return this.#failed;
  }

  /** Connections closed before their handshake, because their source had begun too many. */
  get limited(): number {
    return this.#limited;
  }

  /** Cuts off the handshakes in progress. */
  stop(): void {
    for (const { socket } of this.#inProgress.values()) socket.destroy();
  }

  #begin(socket: Socket): void {
    if (socket.remotePort === undefined) return void socket.destroy();
    if (this.#isLimited(socket)) return void socket.destroy();
    const key = connectionKey(socket);
    const timer = this.#clock.after(HANDSHAKE_WITHIN_MS, () => {
      this.#complain(socket.remoteAddress, `no handshake within ${HANDSHAKE_WITHIN_MS} ms`);
      socket.destroy();
    });
    this.#inProgress.set(key, { socket, timer });
    socket.once('close', () => this.#end(key, socket));
  }

  #isLimited({ remoteAddress = '', destroyed }: Socket): boolean {
    // A connection that another limit has closed costs no handshake.
    if (this.#limiters === undefined || destroyed) return false;
    const source = sourceOf(normalizeAddress(remoteAddress));
    if (this.#limiters.of(source).take(this.#clock.now()) === 0) return false;
    this.#limited += 1;
    this.#limitWarnings.warn(
      { source, limited: this.#limited },
      'tls: an address began too many handshakes (handshakesPerSecond); its new connections are closed',
    );
    return true;
  }

  /**
   * The TLS socket is another object over the same connection; its port may later belong to another
   * connection.
   */
  #end(key: string, socket?: Socket): void {
    const one = this.#inProgress.get(key);
    if (!one || (socket && one.socket !== socket)) return;
    one.timer.cancel();
    this.#inProgress.delete(key);
  }

  #complain(source: string | undefined, reason: string): void {
    this.#failed += 1;
    const text = reason === 'ERR_SSL_HTTP_REQUEST' ? 'plain HTTP was spoken; the caller wants https://' : reason;
    this.#warnings.warn({ source, reason: text }, 'tls: handshake failed');
  }
}
