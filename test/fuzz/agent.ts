/**
 * Agents attacked by an instance: upgrades answered in every way, frames and bytes on bare
 * connections. The agents are the simulated ones, with the link, journal and tasks of the real
 * agent and without a machine: no command of a hostile instance is executed anywhere. An input is
 * one step.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type Server, type Socket } from 'node:net';
import fc from 'fast-check';
import { parseAgentFrame } from '../../lib/protocol/link/codec.ts';
import { instanceFrameTexts } from './frames.ts';
import { letGo } from './let-go.ts';
import { feeder, type Part, Wrong } from './part.ts';
import { bytesOf, FrameReader, type HeardFrame, isReadable, type Step, stepsOf } from './socket-steps.ts';
import { ANSWER_WITHIN_MS, Target } from './target.ts';

const LANES = 8;
const AGENTS = 150;

/** How an upgrade is answered: correctly, with another status, with an invalid head, or never. */
type Upgrade = { kind: 'good' } | { kind: 'bytes'; bytes: string } | { kind: 'silence' };

interface AgentScript {
  upgrade: Upgrade;
  isWelcome: boolean;
  steps: Step[];
  ending: 'fin' | 'reset';
}

const BAD_HEADS = [
  'HTTP/1.1 503 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n',
  'HTTP/1.1 503 No\r\nRetry-After: -1e9\r\nConnection: close\r\n\r\n',
  'HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx',
  'HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.9:9/\r\nContent-Length: 0\r\n\r\n',
  'HTTP/1.1 101 Switching Protocols\r\n\r\n',
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: wrong\r\n\r\n',
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: x\r\n\r\n',
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n',
  'HTTP/1.1 999 ?\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
  'HTTP/9.9 200 OK\r\n\r\n',
  'hello\r\n\r\n',
  `HTTP/1.1 400 ${'x'.repeat(20_000)}\r\n\r\n`,
  'HTTP/1.1 100 Continue\r\n\r\n',
  '\x81\x05hello',
];

const upgrade: fc.Arbitrary<Upgrade> = fc.oneof(
  { weight: 9, arbitrary: fc.constant<Upgrade>({ kind: 'good' }) },
  { weight: 2, arbitrary: fc.constantFrom(...BAD_HEADS).map((bytes) => ({ kind: 'bytes' as const, bytes })) },
  { weight: 1, arbitrary: fc.constant<Upgrade>({ kind: 'silence' }) },
);

const scripts: fc.Arbitrary<AgentScript> = fc.record({
  upgrade,
  isWelcome: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, fc.constant(false)),
  steps: stepsOf(instanceFrameTexts.map(withoutAddresses), 40),
  ending: fc.constantFrom('fin' as const, 'reset' as const),
});

/**
 * An agent connects to any address that it is sent. Here it is sent none, so that no connection
 * leaves this machine.
 */
function withoutAddresses(text: string): string {
  return text.replace(/"(addresses)":\[[^\]]*\]/g, '"$1":[]').replace(/"host":"[^"]*"/g, '"host":"127.0.0.1"');
}

export const agentPart: Part = {
  name: 'agent',
  about: 'agents under attack by an instance: upgrades, frames of every kind, invalid bytes',
  share: 30,
  quick: 400,
  async open() {
    const instance = await HostileInstance.start();
    const agents = Target.fleet(instance.port, AGENTS);
    agents.program.start();
    return feeder<AgentScript>({
      arbitrary: scripts,
      lanes: LANES,
      // Each agent has a connection or waits for the next one. It keeps unacknowledged ends, 5,000
      // at most.
      slack: { files: AGENTS, sockets: AGENTS, timers: 4 * AGENTS, entries: 20_000, heapBytes: 2 ** 26 },
      async feed(script) {
        if (!agents.program.isAlive) agents.program.start();
        await instance.attack(script, () => agents.program.isAlive);
        if (!agents.program.isAlive) throw new Wrong(`the agents died. ${agents.lastWords()}`, 'the agents died');
        return 1 + script.steps.length;
      },
      vitals: () => agents.vitals(),
      inspect: async () => (agents.program.isAlive ? agents.defects() : [`the agents died. ${agents.lastWords()}`]),
      async close() {
        await agents.end();
        await instance.stop();
      },
    });
  },
};

/** Each connection of an agent waits here until a script uses it. */
class HostileInstance {
  readonly #server: Server = createServer({ allowHalfOpen: true, noDelay: true });
  readonly #waiting: Socket[] = [];
  readonly #wanted: ((socket: Socket) => void)[] = [];

  static async start(): Promise<HostileInstance> {
    const instance = new HostileInstance();
    instance.#server.on('connection', (socket) => instance.#take(socket));
    instance.#server.listen(0, '127.0.0.1');
    await once(instance.#server, 'listening');
    return instance;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async attack(script: AgentScript, isAlive: () => boolean): Promise<void> {
    const socket = await this.#next(isAlive);
    if (socket !== undefined) await new Session(socket, script, isAlive).run();
  }

  async stop(): Promise<void> {
    for (const socket of this.#waiting) socket.destroy();
    this.#server.close();
  }

  #take(socket: Socket): void {
    socket.on('error', () => undefined);
    const wanted = this.#wanted.shift();
    if (wanted !== undefined) return wanted(socket);
    // Connections do not wait long: an agent whose connection was not used in time has left, and
    // connects again.
    this.#waiting.push(socket);
    socket.on('close', () => {
      const at = this.#waiting.indexOf(socket);
      if (at >= 0) this.#waiting.splice(at, 1);
    });
  }

  /** Undefined when the agents are dead. @throws Wrong when no agent connects any more */
  async #next(isAlive: () => boolean): Promise<Socket | undefined> {
    const waiting = this.#waiting.shift();
    if (waiting !== undefined) return waiting;
    const { promise, resolve } = Promise.withResolvers<Socket | undefined>();
    this.#wanted.push(resolve);
    const begin = Date.now();
    const timer = setInterval(() => {
      if (isAlive() && Date.now() - begin < ANSWER_WITHIN_MS) return;
      this.#wanted.splice(this.#wanted.indexOf(resolve), 1);
      resolve(undefined);
    }, 500);
    const socket = await promise;
    clearInterval(timer);
    if (socket === undefined && isAlive())
      throw new Wrong(`no agent connected within ${ANSWER_WITHIN_MS} ms`, 'no agent connected');
    return socket;
  }
}

/** One connection of one agent. */
class Session {
  readonly #socket: Socket;
  readonly #script: AgentScript;
  readonly #isAlive: () => boolean;
  readonly #frames = new FrameReader({ expectMask: true });
  readonly #heard: HeardFrame[] = [];
  #head = '';
  #isUpgraded = false;
  #isOver = false;
  #isClosed = false;
  #failure: Error | undefined;
  #wake: () => void = () => undefined;

  constructor(socket: Socket, script: AgentScript, isAlive: () => boolean) {
    this.#socket = socket;
    this.#script = script;
    this.#isAlive = isAlive;
  }

  async run(): Promise<void> {
    for (const event of ['end', 'close']) this.#socket.on(event, () => this.#ended());
    this.#socket.on('data', (chunk) => this.#take(chunk));
    try {
      await this.#wait(() => this.#head.includes('\r\n\r\n') || this.#isClosed, 'ask for an upgrade');
      await this.#attack();
      if (this.#failure !== undefined) throw new Wrong(this.#failure.message);
      this.#judge();
    } finally {
      letGo(this.#socket);
    }
  }

  async #attack(): Promise<void> {
    const { upgrade, isWelcome, steps, ending } = this.#script;
    if (upgrade.kind === 'bytes') this.#socket.write(this.#fill(upgrade.bytes), 'latin1');
    if (upgrade.kind === 'good') {
      this.#isUpgraded = true;
      this.#socket.write(this.#fill(GOOD_HEAD));
      const hello = () => this.#texts().find((text) => text.startsWith('{"type":"hello"'));
      await this.#wait(() => hello() !== undefined || this.#isOver, 'greet');
      if (isWelcome) this.#say(welcomeAfter(hello() ?? '{}'));
      for (const step of steps) await this.#play(step);
      if (isReadable(steps)) await this.#askWhetherHeard();
    }
    if (ending === 'reset' || upgrade.kind === 'silence') return;
    this.#socket.end();
    await this.#wait(() => this.#isClosed, 'let go of a connection that its instance has ended');
  }

  async #play(step: Step): Promise<void> {
    if (this.#isOver) return;
    const filled = 'text' in step ? { ...step, text: this.#fill(step.text) } : step;
    this.#socket.write(bytesOf(filled, false));
    if (step.do === 'pause') await new Promise((done) => setTimeout(done, 2));
  }

  #say(text: string): void {
    this.#socket.write(bytesOf({ do: 'text', text }, false));
  }

  async #askWhetherHeard(): Promise<void> {
    this.#socket.write(bytesOf({ do: 'ping', payload: 'heard?' }, false));
    const isAnswered = () =>
      this.#heard.some(({ opcode, payload }) => opcode === 10 && payload.toString() === 'heard?');
    await this.#wait(() => isAnswered() || this.#isOver, 'answer a ping after all that it was sent');
  }

  #fill(text: string): string {
    const key = /Sec-WebSocket-Key: (\S+)/i.exec(this.#head)?.[1] ?? '';
    const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
    const uuid = /agents\/([^/]+)\/link/.exec(this.#head)?.[1] ?? '';
    const ids: Record<string, string> = {
      accept,
      server: uuid,
      incarnation: uuid,
      journal: uuid,
      task: TASK,
      unknown: UNKNOWN_UUID,
    };
    return text.replace(/\{(\w+)\}/g, (whole, name: string) => ids[name] ?? whole);
  }

  #take(chunk: Buffer): void {
    try {
      if (this.#isUpgraded) this.#heard.push(...this.#frames.push(chunk));
      else this.#head += chunk.toString('latin1');
      this.#isOver ||= this.#heard.some(({ opcode }) => opcode === 8);
    } catch (error) {
      this.#failure = error as Error;
      this.#ended();
    }
    this.#wake();
  }

  #ended(): void {
    this.#isClosed = true;
    this.#isOver = true;
    this.#wake();
  }

  async #wait(isThere: () => boolean, what: string): Promise<void> {
    const begin = Date.now();
    while (!isThere() && this.#isAlive()) {
      if (Date.now() - begin > ANSWER_WITHIN_MS)
        throw new Wrong(`an agent did not ${what} within ${ANSWER_WITHIN_MS} ms`);
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, 500);
      this.#wake = resolve;
      await promise;
      clearTimeout(timer);
    }
  }

  #texts(): string[] {
    return this.#heard.filter(({ opcode }) => opcode === 1).map(({ payload }) => payload.toString());
  }

  /** Every frame of the agent itself must be valid. */
  #judge(): void {
    for (const text of this.#texts()) {
      try {
        parseAgentFrame(text);
      } catch (error) {
        throw new Wrong(`an agent sent ${text.slice(0, 300)}: ${(error as Error).message}`, (error as Error).message);
      }
    }
    const unexpected = this.#heard.find(({ opcode }) => ![1, 8, 9, 10].includes(opcode));
    if (unexpected !== undefined) throw new Wrong(`an agent sent a frame of opcode ${unexpected.opcode}`);
  }
}

const TASK = '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11';
const UNKNOWN_UUID = '00000000-0000-4000-8000-00000000dead';
const GOOD_HEAD =
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n';

function welcomeAfter(hello: string): string {
  const { epoch = 0 } = JSON.parse(hello) as { epoch?: number };
  return JSON.stringify({
    type: 'welcome',
    version: 1,
    capabilities: [],
    cnapiUuid: UNKNOWN_UUID,
    epoch: epoch + 1,
    heartbeatMs: 1_000,
    serverSilenceMs: 60_000,
    reconnectMaxMs: 1_000,
    maxFrameBytes: 8 * 1024 * 1024,
    addresses: [],
    sendSysinfo: true,
  });
}
