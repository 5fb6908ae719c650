/**
 * The HTTP side of a legacy agent, as Triton's cn-agent serves it: /tasks (held until the
 * task ends), /history, /pause and /resume. The test controls what it does. It knows the tasks
 * `nop` and `hold` (until `finish`), and those in `answers`.
 */
import { createHash, randomUUID } from 'node:crypto';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import type { Teardown } from './postgres.ts';
import { until } from './until.ts';

export interface ReceivedTask {
  task: string;
  params: Record<string, unknown>;
  headers: http.IncomingHttpHeaders;
  isDigestRight: boolean;
}

type Answer = [status: number, body?: unknown];

export class FakeLegacyAgent {
  readonly serverUuid: string;
  /** Every task that reached it, including refused ones. */
  readonly received: ReceivedTask[] = [];
  isPaused = false;
  /** The agent's answers to further tasks, by name. */
  readonly answers = new Map<string, Answer>();
  /** Replaces its own answer. */
  misbehave: ((request: http.IncomingMessage, response: http.ServerResponse) => void) | undefined;
  readonly #held = new Map<string, (answer: Answer) => void>();
  readonly #history: { task: string; params: object; status: string; started_at: string }[] = [];
  readonly #server = http.createServer((request, response) => void this.#serve(request, response));

  constructor(serverUuid: string = randomUUID()) {
    this.serverUuid = serverUuid;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get isListening(): boolean {
    return this.#server.listening;
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return this;
  }

  /** Stops and cuts its connections. */
  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  /** Resolves when a task with `params.name` is held here. */
  async holds(name: string): Promise<void> {
    await until(() => this.#held.has(name), `the agent to hold ${name}`);
  }

  finish(name: string, ...answer: Answer | []): void {
    const end = this.#held.get(name);
    if (end === undefined) throw new Error(`the agent does not hold ${name}`);
    this.#held.delete(name);
    end(answer.length === 0 ? [200, {}] : answer);
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    if (this.misbehave !== undefined) return this.misbehave(request, response);
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const [status, body] = await this.#answer(request, Buffer.concat(chunks));
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(body === undefined ? undefined : JSON.stringify(body));
  }

  #answer(request: http.IncomingMessage, body: Buffer): Answer | Promise<Answer> {
    switch (`${request.method} ${request.url}`) {
      case 'POST /tasks':
        return this.#run(request.headers, body);
      case 'GET /history':
        return [200, this.#history.slice(0, 16)];
      case 'POST /pause':
      case 'POST /resume':
        this.isPaused = request.url === '/pause';
        return [204];
      default:
        return [404, { code: 'ResourceNotFound', message: `${request.url} does not exist` }];
    }
  }

  #run(headers: http.IncomingHttpHeaders, body: Buffer): Answer | Promise<Answer> {
    const { task, params = {} } = JSON.parse(body.toString());
    const isDigestRight = headers['content-md5'] === createHash('md5').update(body).digest('base64');
    this.received.push({ task, params, headers, isDigestRight });
    if (headers['x-server-uuid'] !== this.serverUuid) return [404];
    if (task === undefined) return [409, { code: 'MissingParameter', message: "Missing key 'task'" }];
    if (this.isPaused)
      return [503, { code: 'ServiceUnavailable', message: 'CN Agent is not accepting tasks for maintenance' }];
    const started_at = new Date().toISOString();
    this.#history.push({ task, params, status: 'active', started_at });
    if (task === 'nop') return params.error === undefined ? [200, {}] : [500, { error: params.error }];
    if (task === 'hold') return new Promise((resolve) => this.#held.set(String(params.name), resolve));
    return this.answers.get(task) ?? [404, { code: 'ResourceNotFound', message: `Unknown task, '${task}'` }];
  }
}

/** A legacy agent that listens until the test ends. */
export async function startFakeLegacyAgent(t: Teardown, serverUuid?: string): Promise<FakeLegacyAgent> {
  const agent = await new FakeLegacyAgent(serverUuid).listen();
  t.teardown(() => (agent.isListening ? agent.close() : undefined));
  return agent;
}

/** The state after a heartbeat: the server is running, and no instance has authority for it. */
export async function setRunningByHeartbeats(database: Queryable, serverUuid: string): Promise<void> {
  await database.query(
    `insert into cnapi_roster_authority as row (server_uuid, epoch, status, reason, since)
       values ($1::uuid, 1, 'running', 'legacy-heartbeat', cnapi_now())
       on conflict (server_uuid) do update set run = null, cnapi_uuid = null, status = 'running', epoch = row.epoch + 1`,
    [serverUuid],
  );
}
