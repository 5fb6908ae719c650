/**
 * The agent's own HTTP port, where legacy CNAPIs post tasks: POST /tasks (answered when the task
 * has ended), GET /history, POST /pause, POST /resume. Answers are those of Triton's agent,
 * oddities included. The code that starts the agent owns the port. The port listens before the
 * agent exists, because sysinfo names it, and takes tasks once `serve` is called.
 *
 *     new ── start ──► listening, 404 to all ── serve ──► taking tasks ── stop ──► stopped
 *
 * Callers of the port run commands as the agent's user. The port is therefore off by default.
 * By default it listens on loopback and requires a token (http-access.ts). It refuses web pages in
 * a browser of this machine.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, isIP } from 'node:net';
import { hostname } from 'node:os';
import { CnapiError, messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { TaskEndFrame } from '../../protocol/link/frames.ts';
import type { TaskAddress } from '../machine/machine.ts';
import type { HttpAccess } from './http-access.ts';
import { PostError, parsePost, postMemory } from './http-post.ts';
import type { HistoryEntry, PostedTask } from './posted-tasks.ts';
import { HEAD_WITHIN_MS, UnauthenticatedConnections } from './unauthenticated-connections.ts';

/** Runs the tasks. */
export interface HttpWorker {
  readonly serverUuid: string;
  readonly isPaused: boolean;
  /** True when it holds as many posted tasks as it can. */
  readonly isFull: boolean;
  readonly history: readonly HistoryEntry[];
  knows(taskName: string): boolean;
  post(task: PostedTask): Promise<TaskEndFrame>;
}

interface HttpPortDeps {
  host: string;
  port: number;
  access: HttpAccess;
  serverUuid: string;
  agentVersion: string;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** The port cannot listen on its address. */
class HttpPortError extends CnapiError {
  constructor(host: string, port: number, cause: unknown) {
    super('ListenFailed', 500, `--http-port: cannot listen on ${host}:${port}: ${messageOf(cause)}`, { cause });
  }
}

interface Answer {
  status: number;
  body?: unknown;
}

const MAX_CONNECTIONS = 1000;
const REQUEST_WITHIN_MS = 60_000;
const STOP_GRACE_MS = 300;

export class HttpPort {
  readonly #deps: HttpPortDeps;
  readonly #server: Server;
  readonly #callers: UnauthenticatedConnections;
  readonly #bodies = postMemory();
  #worker: HttpWorker | undefined;

  constructor(deps: HttpPortDeps) {
    this.#deps = deps;
    const options = { headersTimeout: HEAD_WITHIN_MS, connectionsCheckingInterval: HEAD_WITHIN_MS / 2 };
    this.#server = createServer(options, (request, response) => void this.#serve(request, response));
    this.#callers = new UnauthenticatedConnections(deps.clock);
    this.#server.on('connection', (socket) => this.#callers.connected(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.requestTimeout = REQUEST_WITHIN_MS;
  }

  /** @throws HttpPortError */
  async start(): Promise<void> {
    const { host, port, log } = this.#deps;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once('error', (cause) => reject(new HttpPortError(host, port, cause)));
    this.#server.listen({ host, port }, resolve);
    await promise;
    this.#server.on('error', (err) => log.error({ err }, 'http port: the listener has an error'));
    log.info({ ...this.address }, 'http port: taking tasks over HTTP');
  }

  /** Gives finished answers STOP_GRACE_MS to go out, then disconnects callers that still wait. */
  async stop(): Promise<void> {
    this.#worker = undefined;
    if (!this.#server.listening) return;
    const closed = new AbortController();
    this.#server.close(() => closed.abort());
    await this.#deps.clock.sleep(STOP_GRACE_MS, closed.signal);
    this.#server.closeAllConnections();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Where it listens. Port 0 takes a free port, which is known once the server listens. */
  get address(): TaskAddress {
    return { host: this.#deps.host, port: (this.#server.address() as AddressInfo).port };
  }

  serve(worker: HttpWorker): void {
    this.#worker = worker;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { clock, random, agentVersion } = this.#deps;
    const startedAt = clock.now();
    const requestId = String(request.headers['x-request-id'] ?? request.headers['request-id'] ?? random.uuid()).slice(
      0,
      200,
    );
    request.on('error', () => undefined);
    response.on('error', () => undefined);
    const answer = await this.#answer(request, requestId).catch((error: unknown) => this.#refusal(error));
    const content = answer.body === undefined ? '' : JSON.stringify(answer.body);
    response.writeHead(answer.status, {
      ...(answer.body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...(answer.status === 204 ? {} : { 'Content-Length': Buffer.byteLength(content) }),
      ...(request.complete ? {} : { Connection: 'close' }),
      Server: `Compute Node Agent/${agentVersion}`,
      'x-request-id': requestId,
      'x-response-time': Math.round(clock.now() - startedAt),
      'x-server-name': hostname(),
    });
    response.end(content);
  }

  #refusal(error: unknown): Answer {
    if (!(error instanceof PostError)) this.#deps.log.error({ err: error }, 'http port: a request failed');
    if (error instanceof PostError)
      return { status: error.statusCode, body: { code: error.code, message: error.message } };
    return { status: 500, body: { error: messageOf(error) } };
  }

  async #answer(request: IncomingMessage, requestId: string): Promise<Answer> {
    this.#checkNotWebPage(request);
    this.#authenticate(request);
    const worker = this.#worker;
    const [path = ''] = (request.url ?? '').split('?');
    const route = `${request.method} ${path}`;
    if (!['POST /tasks', 'GET /history', 'POST /pause', 'POST /resume'].includes(route))
      throw new PostError('ResourceNotFound', 404, `${path.slice(0, 200)} does not exist`);
    if (!worker || (request.headers['x-server-uuid'] ?? worker.serverUuid) !== worker.serverUuid)
      return { status: 404 };
    if (route === 'POST /tasks') return this.#runTask(worker, request, requestId);
    if (route === 'GET /history') return { status: 200, body: worker.history };
    return this.#pause(worker, route === 'POST /pause');
  }

  async #runTask(worker: HttpWorker, request: IncomingMessage, requestId: string): Promise<Answer> {
    if (worker.isPaused)
      throw new PostError('ServiceUnavailable', 503, 'CN Agent is not accepting tasks for maintenance');
    if (worker.isFull) throw new PostError('ServiceUnavailable', 503, 'CN Agent has as many tasks as it can take');
    const { name, params } = await parsePost(request, this.#bodies);
    if (!worker.knows(name)) throw new PostError('ResourceNotFound', 404, `Unknown task, '${name}'`);
    return answerTo(await worker.post({ name, params, requestId }));
  }

  async #pause(worker: HttpWorker, paused: boolean): Promise<Answer> {
    const end = await worker.post({ name: paused ? 'agent_pause' : 'agent_resume', params: {} });
    return end.outcome === 'complete' ? { status: 204 } : answerTo(end);
  }

  #authenticate(request: IncomingMessage): void {
    if (this.#deps.access.admits(request)) {
      this.#callers.admit(request.socket);
      return;
    }
    throw new PostError(
      'Unauthorized',
      401,
      "Send the token in the file http-token of the agent's data directory as `Authorization: Bearer …`; the agent's --http-from names networks that need none",
    );
  }

  /**
   * Refuses browsers: only they send Origin or Sec-Fetch-Site. Refuses any other Host name, against
   * DNS rebinding.
   */
  #checkNotWebPage({ headers }: IncomingMessage): void {
    const host = headers.host
      ?.toLowerCase()
      .replace(/:\d{1,5}$/, '')
      .replace(/^\[(.*)\]$/, '$1');
    const isOurs = host === undefined || isIP(host) || ['localhost', this.#deps.host, hostname()].includes(host);
    if (headers.origin === undefined && headers['sec-fetch-site'] === undefined && isOurs) return;
    throw new PostError('Forbidden', 403, 'This port is not for web pages');
  }
}

/** A failed task is not a request error: the body has `error`, not `code` and `message`. */
function answerTo({ outcome, result, error }: TaskEndFrame): Answer {
  if (outcome === 'complete') return { status: 200, body: result ?? {} };
  return {
    status: 500,
    body: { error: error?.message ?? 'no error given', details: { restCode: error?.code ?? 'TaskError' } },
  };
}
