/**
 * The HTTP listener of an instance: restify on one port, for REST and the agent link
 * (`upgrades.ts`). Owns the socket, its limits, and each request from the first check
 * (`request-head.ts`) to the one answer (`exchange.ts`). Composed by `lib/control/app.ts`. Only
 * `start()` throws, if the address is in use.
 *
 *     new ──start()──▶ listening ──beginDrain()──▶ leaving
 *     leaving ──stopAccepting()──▶ closed to new connections ──stop()──▶ stopped
 *     any ──stop()──▶ stopped     (stop answers waits with 503; links are closed by their owner)
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import restify from 'restify';
import type { CnapiError } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Random } from '../../../platform/random.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { takesBody } from '../../../protocol/api/contract/contract.ts';
import { TooManyRequestsError } from '../../access/access-errors.ts';
import { ErrorForms } from '../answer/error-forms.ts';
import { errorAnswer, isDefect } from '../answer/error-mapping.ts';
import { Exchange } from '../answer/exchange.ts';
import { answerAndClose } from '../answer/raw-answer.ts';
import { ExpectationFailedError, StoppingError, UnreadableRequestError, UpgradeRequiredError } from '../http-errors.ts';
import type { CallerLimits } from '../limits/caller-limits.ts';
import {
  MAX_URL_CHARS,
  namesOf,
  type OwnNames,
  readRequestHead,
  reasonToRefuse,
  wantsWebSocket,
} from '../request/request-head.ts';
import type { RequireServer, Route, RouteAnswer } from '../route.ts';
import type { Certificates } from './certificates.ts';
import { TLS_OPTIONS } from './handshakes.ts';
import { ListenSockets } from './listen-sockets.ts';
import { configureServer } from './node-server.ts';
import { OpenExchanges } from './open-exchanges.ts';
import type { RequestMetrics } from './request-metrics.ts';
import type { RequestPipeline } from './request-pipeline.ts';
import { isUpgrade, type UpgradeRoute, Upgrades } from './upgrades.ts';

export interface ListenerDeps {
  config: {
    host: string;
    port: number;
    advertiseHost?: string | undefined;
    datacenter: string;
    domain: string;
    maxAgents: number;
    /** TLS handshakes of one address, with `tokens`; 0: no limit. */
    handshakesPerSecond: number;
  };
  version: string;
  pipeline: RequestPipeline;
  limits: CallerLimits;
  metrics: RequestMetrics;
  clock: Clock;
  random: Random;
  log: Logger;
  /** Already loaded; with them the port speaks TLS. */
  certificates?: Certificates | undefined;
}

/** The handlers. Passed to `start()`, because the parts that own them need the listener. */
export interface Handlers {
  routes: readonly Route[];
  upgrades: readonly UpgradeRoute[];
  requireServer: RequireServer;
}

const STOP_GRACE_MS = 1000;
/** Connections for callers beside the agents. */
const MAX_CALLER_CONNECTIONS = 1500;

type RoutedRequest = IncomingMessage & { params: Record<string, string> };

export class HttpListener {
  readonly #deps: ListenerDeps;
  readonly #own: OwnNames;
  readonly #restify: restify.Server;
  readonly #exchanges: OpenExchanges;
  readonly #errorForms = new ErrorForms();
  readonly #upgrades: Upgrades;
  readonly #sockets: ListenSockets;
  #port: number | undefined;
  #isLeaving = false;
  #stopped: Promise<void> | undefined;

  constructor(deps: ListenerDeps) {
    this.#deps = deps;
    this.#exchanges = new OpenExchanges(deps.clock);
    this.#own = { names: namesOf(deps.config), anyAddress: !deps.pipeline.isOpen };
    this.#upgrades = new Upgrades({
      ...deps,
      refusalOfHead: (request) => this.#reasonToRefuse(request),
      isFree: (socket) => this.#exchanges.isFree(socket),
    });
    this.#restify = this.#createServer();
    const { host, port, maxAgents } = deps.config;
    const maxConnections = maxAgents + MAX_CALLER_CONNECTIONS;
    const handshakesPerSecond = deps.pipeline.isOpen ? 0 : deps.config.handshakesPerSecond;
    const limits = { maxConnections, handshakesPerSecond };
    this.#sockets = new ListenSockets({ ...deps, http: this.#server, host, port, ...limits });
  }

  /** @throws the system's error if the port is in use. */
  async start(handlers: Handlers): Promise<void> {
    for (const route of handlers.routes) this.#mount(route, handlers);
    this.#upgrades.start(this.#restify, handlers.upgrades, (request) => this.#checkIsUpgrade(request));
    // restify emits the server's errors again, and throws if nothing listens.
    const ignoreStartError = () => undefined;
    this.#restify.on('error', ignoreStartError);
    this.#port = await this.#sockets.open().finally(() => this.#restify.off('error', ignoreStartError));
    this.#restify.on('error', (error) => this.#deps.log.error({ err: error }, 'http: the listener has an error'));
    this.#deps.log.info({ url: this.url }, 'http: listening');
  }

  /** Unanswered requests, TLS handshakes, and one while the socket waits to close. */
  get unanswered(): number {
    return this.#exchanges.size + this.#sockets.handshakes + Number(this.#sockets.isClosing);
  }

  /** Whether this address may cause another line of the log; if not, it is counted. */
  mayLog(address: string): boolean {
    return this.#deps.limits.requestLog.mayWrite(address);
  }

  /** This instance will leave: each answer is the last one on its connection. */
  beginDrain(): void {
    this.#isLeaving = true;
  }

  /** Accepts no new connections, once none is arriving. Existing connections and links stay. */
  stopAccepting(): void {
    this.#sockets.closeWhenIdle();
  }

  /** Answers waits with 503, gives those in progress a second, closes the rest. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** The URL of the listener; with port 0 configured, known after `start()`. */
  get url(): string {
    const { host, port } = this.#deps.config;
    return `${this.#scheme}://${host.includes(':') ? `[${host}]` : host}:${this.#port ?? port}`;
  }

  /** Handshakes that failed; 0 without TLS. */
  get failedHandshakes(): number {
    return this.#sockets.failedHandshakes;
  }

  /** Connections closed before their handshake, because their address had begun too many. */
  get limitedHandshakes(): number {
    return this.#sockets.limitedHandshakes;
  }

  /** Connections cut off without an answer, because the limit was reached. */
  get cutConnections(): number {
    return this.#sockets.cut;
  }

  get #scheme(): 'http' | 'https' {
    return this.#deps.certificates ? 'https' : 'http';
  }

  get #server(): Server {
    return this.#restify.server as Server;
  }

  #createServer(): restify.Server {
    const { version, log, pipeline, certificates } = this.#deps;
    const server = restify.createServer({
      ...(certificates && { httpsServerOptions: TLS_OPTIONS }),
      name: `cnapi/${version}`,
      handleUpgrades: true,
      // Sent only when the caller is authorized and the body is wanted: `Exchange.acceptBody`.
      noWriteContinue: true,
      log: log as never,
      maxParamLength: MAX_URL_CHARS,
    });
    // Before restify parses the URL, because that throws for some URLs.
    const early = server as unknown as {
      first(admit: (request: IncomingMessage, response: ServerResponse) => boolean): void;
    };
    early.first((request, response) => this.#checkHead(request, response));
    server.on('restifyError', (request: IncomingMessage, response: ServerResponse, error: unknown) => {
      if (isUpgrade(response)) this.#upgrades.refuseUnrouted(response, error);
      else this.#refuseUnrouted(request, error);
    });
    const http = server.server as Server;
    configureServer(http, {
      isTls: certificates !== undefined,
      // Behind unanswered requests it would be answered first; HTTP permits a server to ignore it.
      mayUpgrade: (request) => wantsWebSocket(request) && this.#exchanges.isFree(request.socket),
      ignoresInput: (socket) => this.#exchanges.on(socket)?.ignoresInput === true,
    });
    http.on('connection', (socket) => pipeline.connected(socket));
    http.on('checkExpectation', (request, response) => {
      const limited = pipeline.rateLimitRefusal(request);
      const exchange = this.#admit(request, response);
      if (exchange !== undefined) this.#refuse(exchange, limited ?? new ExpectationFailedError());
    });
    http.on('clientError', (error: NodeJS.ErrnoException, socket) => this.#refuseUnread(error, socket));
    return server;
  }

  #mount(route: Route, { requireServer }: Handlers): void {
    this.#errorForms.add(route);
    const verb = ({ GET: 'get', POST: 'post', PUT: 'put', DELETE: 'del' } as const)[route.method];
    this.#restify[verb]({ name: route.name, path: route.path }, (request, _response, next) => {
      void this.#serve(route, request as unknown as RoutedRequest, requireServer).finally(() => next(false));
    });
  }

  /** False for a request that is not carried out. */
  #checkHead(request: IncomingMessage, response: ServerResponse): boolean {
    if (isUpgrade(response)) return this.#upgrades.checkHead(request, response);
    // Asked before, so that a request that is dropped counts, too.
    const reason = this.#reasonToRefuse(request);
    const exchange = this.#admit(request, response);
    if (exchange === undefined) return false;
    if (reason !== undefined) this.#refuse(exchange, reason);
    return reason === undefined;
  }

  /** The path of an upgrade, without it. */
  #checkIsUpgrade(request: IncomingMessage): void {
    void this.#exchanges.get(request)?.send(errorAnswer(new UpgradeRequiredError()));
  }

  #reasonToRefuse(request: IncomingMessage): CnapiError | undefined {
    const refusal = this.#deps.pipeline.rateLimitRefusal(request);
    return refusal ?? reasonToRefuse(readRequestHead(request, this.#scheme), this.#own);
  }

  /**
   * Refuses a request for its head. How far its body reaches is in doubt, so nothing can follow.
   */
  #refuse(exchange: Exchange, reason: CnapiError): void {
    if (reason instanceof TooManyRequestsError) exchange.limitBodyDrain();
    const answer = this.#errorForms.answerTo(reason, exchange.request.url ?? '');
    void exchange.send({ ...answer, headers: { ...answer.headers, Connection: 'close' } });
    this.#exchanges.on(exchange.request.socket)?.end({ ignoreInput: exchange.isOverBodyLimit });
  }

  /** Undefined if the request must not be carried out. */
  #admit(request: IncomingMessage, response: ServerResponse): Exchange | undefined {
    const isLeaving = () => this.#isLeaving && this.#exchanges.on(request.socket)?.mayCloseNext === true;
    const exchange = new Exchange(request, response, { ...this.#deps, isLeaving });
    return this.#exchanges.add(exchange, response) ? exchange : undefined;
  }

  async #serve(route: Route, request: RoutedRequest, requireServer: RequireServer): Promise<void> {
    const exchange = this.#exchanges.get(request);
    if (exchange === undefined) return;
    if (!takesBody(route)) exchange.dropBody();
    const turn = this.#exchanges.on(request.socket)?.turnOf(exchange);
    if (turn !== undefined) {
      await turn;
      if (!request.socket.writable) return;
    }
    const answer = await this.#answerTo(route, { request, exchange, requireServer });
    await exchange.send(answer);
    const { elapsedMs, status } = exchange;
    this.#deps.metrics.count({ method: route.method, route: route.name, status, seconds: elapsedMs / 1000 });
    if (route.quiet !== true) exchange.logRequest(route);
  }

  async #answerTo(
    route: Route,
    { request, exchange, requireServer }: { request: RoutedRequest; exchange: Exchange; requireServer: RequireServer },
  ): Promise<RouteAnswer> {
    try {
      if (this.#stopped !== undefined) throw new StoppingError();
      const { pipeline } = this.#deps;
      return await pipeline.serveAuthorized(route, { request, path: request.params, exchange, requireServer });
    } catch (error) {
      if (isDefect(error) && !exchange.signal.aborted)
        exchange.log.error({ err: error, route: route.name }, 'request: failed');
      return (route.errorAnswer ?? errorAnswer)(error);
    }
  }

  /** Requests without a route in restify's router. */
  #refuseUnrouted(request: IncomingMessage, error: unknown): void {
    const exchange = this.#exchanges.get(request);
    if (exchange === undefined) return;
    const answer = this.#errorForms.unroutedAnswer(error, { method: request.method ?? '', path: exchange.path });
    if (answer === undefined) exchange.log.error({ err: error }, 'request: routing failed');
    void exchange.send(answer ?? errorAnswer(error));
  }

  /** Input that Node could not parse as a request. */
  #refuseUnread(error: NodeJS.ErrnoException, socket: Duplex): void {
    const connection = this.#exchanges.on(socket);
    if (connection !== undefined) connection.refuseUnread(error);
    else if (!socket.writable || error.code === 'ECONNRESET') socket.destroy();
    else answerAndClose(socket, errorAnswer(new UnreadableRequestError(error)), this.#deps.clock);
  }

  async #stop(): Promise<void> {
    if (this.#port === undefined) return;
    // Upgraded sockets would delay a close; their owner closes them.
    this.#sockets.close();
    const allAnswered = this.#exchanges.whenEmpty();
    this.#upgrades.stop();
    for (const exchange of this.#exchanges.all()) exchange.abort(new StoppingError());
    if (this.#exchanges.size > 0) await this.#deps.clock.sleep(STOP_GRACE_MS, allAnswered);
    this.#sockets.cutHandshakes();
    await this.#deps.certificates?.stop();
    this.#server.closeAllConnections();
    // Its listening sockets are closed already; this ends its timer.
    this.#server.close();
    this.#deps.limits.requestLog.stop();
    this.#deps.log.info('http: stopped');
  }
}
