/**
 * The agent's end of one link under the test's control: the test sends each frame, and received
 * frames are kept.
 */
import { randomUUID } from 'node:crypto';
import WebSocket from 'ws';
import { systemClock } from '../../lib/platform/time/clock.ts';
import type { HelloFrame, InstanceFrame } from '../../lib/protocol/link/frames.ts';
import { until } from './until.ts';

export interface Machine {
  serverUuid: string;
  incarnation: string;
  journalId: string;
}

export const newMachine = (): Machine => ({
  serverUuid: randomUUID(),
  incarnation: randomUUID(),
  journalId: randomUUID(),
});

export interface CloseInfo {
  code: number;
  reason: string;
}

export class ScriptedAgent {
  readonly frames: InstanceFrame[] = [];
  readonly socket: WebSocket;
  closed: CloseInfo | undefined;
  /** The HTTP status that answered the upgrade, when it was refused. */
  refusedWith: number | undefined;
  /** The refusal's Retry-After. */
  retryAfterSeconds: number | undefined;
  readonly machine: Machine;
  #heartbeats: ReturnType<typeof setInterval> | undefined;

  constructor(
    url: string,
    machine: Machine,
    path = `/agents/${machine.serverUuid}/link`,
    from: { localAddress?: string } = {},
  ) {
    this.machine = machine;
    this.socket = new WebSocket(`${url.replace('http', 'ws')}${path}`, { perMessageDeflate: false, ...from });
    this.socket.on('message', (data) => this.frames.push(JSON.parse(String(data)) as InstanceFrame));
    this.socket.on('unexpected-response', (_request, response) => {
      this.refusedWith = response.statusCode ?? 0;
      this.retryAfterSeconds = Number(response.headers['retry-after']);
      this.socket.terminate();
    });
    this.socket.on('error', () => {});
    this.socket.on('close', (code, reason) => {
      clearInterval(this.#heartbeats);
      this.closed = { code, reason: String(reason) };
    });
  }

  async open(): Promise<this> {
    await until(() => this.socket.readyState === WebSocket.OPEN || this.closed, 'the link to open');
    return this;
  }

  send(frame: object): void {
    this.socket.send(JSON.stringify(frame));
  }

  hello(fields: Partial<HelloFrame> = {}): void {
    this.send({
      type: 'hello',
      version: 1,
      capabilities: ['task:nop', 'task:sleep'],
      ...this.machine,
      conn: 1,
      epoch: 0,
      bootId: 'boot',
      agentVersion: '0.1.0',
      sysinfoDigest: 'none',
      ...fields,
    });
  }

  /** Resolves to the first frame of this type, received already or later. */
  next<Type extends InstanceFrame['type']>(type: Type): Promise<Extract<InstanceFrame, { type: Type }>> {
    const find = () =>
      this.frames.find((frame) => frame.type === type) as Extract<InstanceFrame, { type: Type }> | undefined;
    return until(() => {
      const found = find();
      if (found === undefined && this.closed)
        throw new Error(`closed (${this.closed.code} ${this.closed.reason}) before ${type}`);
      return found;
    }, `a ${type} frame`);
  }

  /** Sends hello, inventory and sysinfo, and heartbeats from then on. Returns the epoch. */
  async join(fields: Partial<HelloFrame> = {}): Promise<number> {
    this.hello(fields);
    const { epoch, sendSysinfo } = await this.next('welcome');
    this.send({ type: 'inventory', epoch, tasks: [] });
    const { serverUuid } = this.machine;
    if (sendSysinfo) this.send({ type: 'sysinfo', digest: 'one', sysinfo: { UUID: serverUuid, Hostname: 'scripted' } });
    this.beat();
    return epoch;
  }

  beat(periodMs = 300): void {
    let sequence = 0;
    this.#heartbeats = setInterval(() => this.send({ type: 'heartbeat', sequence: sequence++ }), periodMs);
  }

  /** Keeps the socket open and sends nothing more, not even answers to pings. */
  fallSilent(): void {
    clearInterval(this.#heartbeats);
    this.socket.pause();
  }

  async end(): Promise<CloseInfo> {
    return until(() => this.closed, 'the link to close');
  }

  close(): void {
    this.socket.close();
  }
}

/**
 * Connects and joins. On a machine that is busy with other tests, an instance may refuse the agent
 * or end its connection before the welcome; then it tries again, as a real agent does.
 */
export async function joinAgent(url: string, machine: Machine, fields: Partial<HelloFrame> = {}) {
  for (let tries = 1; ; tries += 1) {
    const agent = await new ScriptedAgent(url, machine).open();
    try {
      return { agent, epoch: await agent.join(fields) };
    } catch (error) {
      const mayRetry = agent.refusedWith === 503 || agent.closed?.reason === 'the instance cannot reach its database';
      if (!mayRetry || tries === 10) throw error;
      await systemClock.sleep(1_000 * (agent.retryAfterSeconds ?? 1));
    }
  }
}
