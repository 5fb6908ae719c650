/**
 * The agent's own HTTP port, for CNAPIs of the older kind, which give their tasks there: POST /tasks (answered when the
 * task has ended), GET /history, POST /pause, POST /resume. Answers are the reference agent's, oddities included. Whoever
 * starts the agent owns it: it listens before the agent stands (sysinfo names its port) and takes tasks once `serve` is called.
 *
 *     new ── start ──► listening, 404 to all ── serve ──► at work ── stop ──► stopped
 *
 * It takes commands from whoever reaches it, as the reference's does; so it is off unless asked for, listens on loopback
 * unless told otherwise, and a web page in a browser of this machine is turned away.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, isIP } from 'node:net';
import { hostname } from 'node:os';
import { CnapiError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import type { TaskEndFrame } from '../wire/frames.ts';
import { PostError, parsePost } from './http-post.ts';
import type { TaskAddress } from './machine.ts';
import type { HistoryEntry, PostedTask } from './posted-tasks.ts';

/** Who does the work. */
export interface HttpWorker {
  readonly serverUuid: string;
  readonly isPaused: boolean;
  /** It holds as many posted tasks as it can. */
  readonly isFull: boolean;
  readonly history: readonly HistoryEntry[];
  knows(taskName: string): boolean;
  post(task: PostedTask): Promise<TaskEndFrame>;
}

export interface HttpPortDeps {
  host: string;
  port: number;
  serverUuid: string;
  agentVersion: string;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** The address cannot be listened on. */
export class HttpPortError extends CnapiError {
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
  #worker: HttpWorker | undefined;

  constructor(deps: HttpPortDeps) {
    this.#deps = deps;
    this.#server = createServer((request, response) => void this.#serve(request, response));
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
    this.#server.on('error', (err) => log.error({ err }, 'http port'));
    log.info({ ...this.address }, 'taking tasks over HTTP');
  }

  /** What is answered by now has a moment to go out; callers that still wait are cut off. */
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

  /** Where it listens; with port 0, known once it does. */
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
    this.#turnPagesAway(request);
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
    const { name, params } = await parsePost(request);
    if (!worker.knows(name)) throw new PostError('ResourceNotFound', 404, `Unknown task, '${name}'`);
    return answerTo(await worker.post({ name, params, requestId }));
  }

  async #pause(worker: HttpWorker, paused: boolean): Promise<Answer> {
    const end = await worker.post({ name: paused ? 'agent_pause' : 'agent_resume', params: {} });
    return end.outcome === 'complete' ? { status: 204 } : answerTo(end);
  }

  /** No program but a browser says where it comes from; and a name that is rebound to this machine is not an address of it. */
  #turnPagesAway({ headers }: IncomingMessage): void {
    const host = headers.host
      ?.toLowerCase()
      .replace(/:\d{1,5}$/, '')
      .replace(/^\[(.*)\]$/, '$1');
    const isOurs = host === undefined || isIP(host) || ['localhost', this.#deps.host, hostname()].includes(host);
    if (headers.origin === undefined && headers['sec-fetch-site'] === undefined && isOurs) return;
    throw new PostError('Forbidden', 403, 'This port is not for web pages');
  }
}

/** A task's failure is no error of the request: `error`, not `code` and `message`. */
function answerTo({ outcome, result, error }: TaskEndFrame): Answer {
  if (outcome === 'complete') return { status: 200, body: result ?? {} };
  return {
    status: 500,
    body: { error: error?.message ?? 'no error given', details: { restCode: error?.code ?? 'TaskError' } },
  };
}
