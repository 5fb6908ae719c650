/**
 * A minimal instance under the test's control: accepts the upgrade, records every frame of every
 * agent, and answers as scripted. By default it welcomes every agent, echoes heartbeats and
 * acknowledges ends.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { parseAgentFrame } from '../../lib/protocol/link/codec.ts';
import type {
  AgentFrame,
  HelloFrame,
  InstanceAddress,
  InstanceFrame,
  RefuseFrame,
  TaskEndFrame,
  WelcomeFrame,
} from '../../lib/protocol/link/frames.ts';
import { until } from './until.ts';

export type FrameOf<Type extends AgentFrame['type']> = Extract<AgentFrame, { type: Type }>;

export class ScriptedSession {
  readonly serverUuid: string;
  readonly frames: AgentFrame[] = [];
  readonly #socket: WebSocket;
  closed: { code: number; reason: string } | undefined;

  constructor(socket: WebSocket, serverUuid: string) {
    this.#socket = socket;
    this.serverUuid = serverUuid;
    socket.on('close', (code, reason) => {
      this.closed = { code, reason: String(reason) };
    });
  }

  send(frame: InstanceFrame | Record<string, unknown> | string): void {
    this.#socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame));
  }

  all<Type extends AgentFrame['type']>(type: Type): FrameOf<Type>[] {
    return this.frames.filter((frame): frame is FrameOf<Type> => frame.type === type);
  }

  /** Resolves to the first frame of the type that fits, received already or later. */
  async received<Type extends AgentFrame['type']>(type: Type, fits: (frame: FrameOf<Type>) => boolean = () => true) {
    const find = () => this.all(type).find(fits);
    return until(find, `a ${type}; received ${this.frames.map((frame) => frame.type).join(' ')}`);
  }

  end(id: string): Promise<TaskEndFrame> {
    return this.received('task_end', (frame) => frame.id === id);
  }

  events(id: string): string[] {
    return this.all('task_event')
      .filter((frame) => frame.id === id)
      .map((frame) => frame.event.name);
  }

  task(fields: {
    id: string;
    epoch: number;
    name: string;
    params?: Record<string, unknown>;
    attempt?: number;
    timeoutMs?: number;
  }) {
    this.send({ type: 'task', attempt: 1, params: {}, timeoutMs: 60_000, ...fields });
  }

  close(): void {
    this.#socket.close(1001, 'scripted');
  }

  /** Cuts the connection without a closing handshake. */
  cut(): void {
    this.#socket.terminate();
  }
}

export interface Script {
  /** An HTTP status to refuse upgrades with. */
  upgradeStatus?: number;
  /** If given, it uses TLS. */
  tls?: { cert: Buffer; key: Buffer };
  /** Headers of that refusal, one per line. */
  upgradeHeaders?: string;
  /** The answer to a hello: fields that override the default welcome, a refusal, or no answer. */
  greet?: (hello: HelloFrame, session: ScriptedSession) => Partial<WelcomeFrame> | RefuseFrame | 'silence';
  echo?: boolean;
  acknowledge?: boolean;
  welcome?: Partial<WelcomeFrame>;
}

export class ScriptedInstance {
  readonly uuid = crypto.randomUUID();
  readonly sessions: ScriptedSession[] = [];
  script: Script;
  upgrades = 0;
  /** The Authorization header of each upgrade. */
  readonly authorizations: (string | undefined)[] = [];
  readonly #server: Server;
  readonly #scheme: 'http' | 'https';
  readonly #sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  readonly #raw = new Set<Duplex>();
  #epoch = 0;

  constructor(script: Script = {}) {
    this.script = script;
    this.#scheme = script.tls ? 'https' : 'http';
    this.#server = script.tls ? createTlsServer(script.tls) : createServer();
    this.#server.on('upgrade', (request, socket, head) => this.#onUpgrade(request, socket, head));
  }

  static async start(script: Script = {}, port = 0): Promise<ScriptedInstance> {
    const instance = new ScriptedInstance(script);
    instance.#server.listen(port, '127.0.0.1');
    await once(instance.#server, 'listening');
    return instance;
  }

  get address(): InstanceAddress {
    return { uuid: this.uuid, host: '127.0.0.1', port: (this.#server.address() as AddressInfo).port };
  }

  get url(): string {
    return `${this.#scheme}://127.0.0.1:${this.address.port}`;
  }

  /** Resolves to the session with this number, counted from 0 in order of hellos. */
  session(number: number): Promise<ScriptedSession> {
    return until(() => this.sessions[number], `session ${number} at an instance with ${this.sessions.length}`);
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    for (const socket of this.#raw) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.upgrades += 1;
    this.authorizations.push(request.headers.authorization);
    this.#raw.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.#raw.delete(socket));
    const serverUuid = /^\/agents\/([0-9a-f-]{36})\/link$/.exec(request.url ?? '')?.[1];
    const status = serverUuid === undefined ? 404 : this.script.upgradeStatus;
    if (status !== undefined || serverUuid === undefined) {
      const { upgradeHeaders = 'Content-Length: 0' } = this.script;
      socket.end(`HTTP/1.1 ${status} No\r\nConnection: close\r\n${upgradeHeaders}\r\n\r\n`);
      return;
    }
    this.#sockets.handleUpgrade(request, socket, head, (opened) => this.#open(opened, serverUuid));
  }

  #open(socket: WebSocket, serverUuid: string): void {
    const session = new ScriptedSession(socket, serverUuid);
    socket.on('error', () => undefined);
    socket.on('message', (data) => this.#onFrame(session, parseAgentFrame(String(data))));
  }

  #onFrame(session: ScriptedSession, frame: AgentFrame): void {
    session.frames.push(frame);
    const { echo = true, acknowledge = true } = this.script;
    if (frame.type === 'hello') this.#greet(session, frame);
    if (frame.type === 'heartbeat' && echo) session.send(frame);
    if (frame.type === 'task_end' && acknowledge)
      session.send({ type: 'task_ack', id: frame.id, attempt: frame.attempt });
  }

  #greet(session: ScriptedSession, hello: HelloFrame): void {
    this.sessions.push(session);
    const answer = this.script.greet?.(hello, session) ?? {};
    if (answer === 'silence') return;
    if ('type' in answer && answer.type === 'refuse') {
      session.send(answer);
      session.close();
      return;
    }
    this.#epoch = Math.max(this.#epoch, hello.epoch) + 1;
    session.send({ ...this.#defaultWelcome(), ...this.script.welcome, ...answer });
  }

  #defaultWelcome(): WelcomeFrame {
    return {
      type: 'welcome',
      version: 1,
      capabilities: [],
      cnapiUuid: this.uuid,
      epoch: this.#epoch,
      heartbeatMs: 200,
      serverSilenceMs: 3000,
      reconnectMaxMs: 1000,
      maxFrameBytes: 8 * 1024 * 1024,
      addresses: [this.address],
      sendSysinfo: false,
    };
  }
}

export const refuse = (code: string, fields: Partial<RefuseFrame> = {}): RefuseFrame => ({
  type: 'refuse',
  code,
  message: `scripted ${code}`,
  ...fields,
});
