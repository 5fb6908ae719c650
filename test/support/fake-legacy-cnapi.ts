/**
 * A legacy CNAPI as its agents see it: takes sysinfo, agents, heartbeats and status by POST, marks
 * a server `running` by its heartbeats, posts tasks to the agent's own port, and has no agent link.
 * It records all requests.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';

export interface FakeLegacyCnapiScript {
  /**
   * Acts like a Node older than 10: an upgrade that nobody listens for ends the connection without
   * an answer.
   */
  hangsUpOnUpgrades?: boolean;
  /** Answers these paths with this status. */
  refuse?: { path: RegExp; status: number; retryAfter?: string };
  /** If given, it uses TLS. */
  tls?: { cert: Buffer; key: Buffer };
  /** Accepts requests for these paths and never answers. */
  hang?: RegExp;
}

export interface Asked {
  at: number;
  method: string;
  /** Path after the server's part: `/events/heartbeat`, `/sysinfo`, or empty for the server. */
  path: string;
  serverUuid: string;
  userAgent: string;
  authorization: string | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: whatever was posted; tests look at parts of it
  body: any;
}

const LIFETIME_MS = 11_000;
const ROUTES = ['POST /sysinfo', 'POST ', 'POST /events/heartbeat', 'POST /events/status'];

export class FakeLegacyCnapi {
  readonly script: FakeLegacyCnapiScript;
  readonly asked: Asked[] = [];
  upgrades = 0;
  /** Unanswered requests whose caller still waits. */
  unanswered = 0;
  port = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #servers = new Map<string, { sysinfo: Record<string, unknown>; heardAt: number }>();

  constructor(script: FakeLegacyCnapiScript) {
    this.script = script;
    const serve = (request: IncomingMessage, response: ServerResponse) => void this.#serve(request, response);
    this.#server = script.tls ? createTlsServer(script.tls, serve) : createServer(serve);
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    if (script.hangsUpOnUpgrades) {
      this.#server.on('upgrade', (_request, socket) => {
        this.upgrades += 1;
        socket.destroy();
      });
    }
  }

  static async start(script: FakeLegacyCnapiScript = {}, port = 0): Promise<FakeLegacyCnapi> {
    const cnapi = new FakeLegacyCnapi(script);
    cnapi.#server.listen(port, '127.0.0.1');
    await once(cnapi.#server, 'listening');
    cnapi.port = (cnapi.#server.address() as AddressInfo).port;
    return cnapi;
  }

  get address(): { host: string; port: number } {
    return { host: '127.0.0.1', port: this.port };
  }

  get url(): string {
    return `http${this.script.tls ? 's' : ''}://127.0.0.1:${this.port}`;
  }

  all(path: string): Asked[] {
    return this.asked.filter((one) => one.path === path);
  }

  statusOf(serverUuid: string): 'running' | 'unknown' {
    const heardAt = this.#servers.get(serverUuid)?.heardAt ?? 0;
    return Date.now() - heardAt < LIFETIME_MS ? 'running' : 'unknown';
  }

  forget(serverUuid: string): void {
    this.#servers.delete(serverUuid);
  }

  /** Posts a task like Triton's CNAPI: to the admin address and the port in sysinfo. */
  async runTask(serverUuid: string, task: string, params: Record<string, unknown> = {}) {
    const response = await fetch(`${this.#agentUrl(serverUuid)}/tasks`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-server-uuid': serverUuid, 'x-request-id': 'r-1' },
      body: JSON.stringify({ task, params: { server_uuid: serverUuid, ...params } }),
    });
    return { status: response.status, body: await response.json() };
  }

  async historyOf(serverUuid: string): Promise<unknown[]> {
    const response = await fetch(`${this.#agentUrl(serverUuid)}/history`);
    return (await response.json()) as unknown[];
  }

  #agentUrl(serverUuid: string): string {
    const { sysinfo } = this.#servers.get(serverUuid) ?? {};
    if (!sysinfo) throw new Error(`server ${serverUuid} is not known here`);
    return `http://${sysinfo['Admin IP']}:${sysinfo['CN Agent Port']}`;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await once(this.#server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { method = '', url = '', headers } = request;
    if (headers.upgrade) this.upgrades += 1;
    const [, serverUuid = '', path = ''] = /^\/servers\/([^/]+)(.*)$/.exec(url) ?? [];
    const refusal = this.script.refuse?.path.test(path) ? this.script.refuse : undefined;
    if (serverUuid === '' || !ROUTES.includes(`${method} ${path}`)) {
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ code: 'ResourceNotFound', message: `${url} does not exist` }));
      return;
    }
    const body = JSON.parse(Buffer.concat(chunks).toString() || '{}');
    const userAgent = headers['user-agent'] ?? '';
    this.asked.push({
      at: Date.now(),
      method,
      path,
      serverUuid,
      userAgent,
      authorization: headers.authorization,
      body,
    });
    if (this.script.hang?.test(path)) {
      this.unanswered += 1;
      response.on('close', () => {
        this.unanswered -= 1;
      });
      return;
    }
    if (refusal?.retryAfter !== undefined) response.setHeader('Retry-After', refusal.retryAfter);
    response.statusCode = refusal?.status ?? this.#take(serverUuid, path, body);
    response.end();
  }

  #take(serverUuid: string, path: string, body: Record<string, unknown>): number {
    const known = this.#servers.get(serverUuid);
    if (path === '/sysinfo') {
      const sysinfo = body.sysinfo as Record<string, unknown>;
      this.#servers.set(serverUuid, { sysinfo, heardAt: known?.heardAt ?? 0 });
      return 200;
    }
    if (path === '/events/heartbeat' && known) known.heardAt = Date.now();
    return path === '/events/heartbeat' || known ? 204 : 404;
  }
}
