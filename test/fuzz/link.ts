/**
 * An instance attacked by agents: handshakes, hellos, frames and bytes on bare connections. An
 * input is one step.
 */
import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import fc from 'fast-check';
import { RETURN_BURST } from '../../lib/control/roster/status/authority-row.ts';
import { parseInstanceFrame } from '../../lib/protocol/link/codec.ts';
import { AnswerReader } from './answers.ts';
import { agentFrameTexts } from './frames.ts';
import { letGo } from './let-go.ts';
import { feeder, type Part, Wrong } from './part.ts';
import { complaintOf } from './rest-rules.ts';
import { bytesOf, FrameReader, type HeardFrame, isReadable, type Step, stepsOf } from './socket-steps.ts';
import { ANSWER_WITHIN_MS, type Target } from './target.ts';

const LANES = 6;

/**
 * The request for the upgrade. `good`: valid. `head`: with the first frames in the same write.
 * `half`: broken off after some bytes. The others are invalid handshakes.
 */
type Handshake = { kind: 'good' | 'head' } | { kind: 'half'; bytes: number } | { kind: 'bad'; change: string };

interface LinkScript {
  handshake: Handshake;
  /** Whether hello and inventory precede the steps, so that there is a session to attack. */
  isJoined: boolean;
  steps: Step[];
  ending: 'fin' | 'reset';
}

const CHANGES: Record<string, (head: string) => string> = {
  'no key': (head) => head.replace(/Sec-WebSocket-Key.*\r\n/, ''),
  'short key': (head) => head.replace(/(Sec-WebSocket-Key: ).*/, '$1short'),
  'no version': (head) => head.replace(/Sec-WebSocket-Version.*\r\n/, ''),
  'version 12': (head) => head.replace('Version: 13', 'Version: 12'),
  'a subprotocol that is none': (head) => head.replace('Upgrade:', 'Sec-WebSocket-Protocol: a b,,\r\nUpgrade:'),
  extensions: (head) => head.replace('Upgrade:', 'Sec-WebSocket-Extensions: permessage-deflate; x="\r\nUpgrade:'),
  POST: (head) => head.replace('GET', 'POST'),
  'no uuid': (head) => head.replace(/agents\/[^/]+/, 'agents/__proto__'),
  'another path': (head) => head.replace('/link', '/links'),
  'a foreign origin': (head) => head.replace('Upgrade:', 'Origin: http://evil.example\r\nUpgrade:'),
  'a foreign host': (head) => head.replace('Host: 127.0.0.1', 'Host: evil.example'),
  'no connection': (head) => head.replace(/Connection.*\r\n/, ''),
  'two upgrades': (head) => head.replace('Upgrade: websocket', 'Upgrade: websocket, h2c'),
  'HTTP/1.0': (head) => head.replace('HTTP/1.1', 'HTTP/1.0'),
  'a body': (head) => head.replace('Upgrade:', 'Content-Length: 5\r\nUpgrade:'),
  'a long header': (head) => head.replace('Upgrade:', `X: ${'x'.repeat(20_000)}\r\nUpgrade:`),
};

const handshake: fc.Arbitrary<Handshake> = fc.oneof(
  { weight: 12, arbitrary: fc.constantFrom<Handshake>({ kind: 'good' }, { kind: 'head' }) },
  { weight: 2, arbitrary: fc.nat(200).map((bytes) => ({ kind: 'half' as const, bytes })) },
  {
    weight: 3,
    arbitrary: fc.constantFrom(...Object.keys(CHANGES)).map((change) => ({ kind: 'bad' as const, change })),
  },
);

const scripts: fc.Arbitrary<LinkScript> = fc.record({
  handshake,
  isJoined: fc.oneof({ weight: 3, arbitrary: fc.constant(true) }, fc.constant(false)),
  steps: stepsOf(agentFrameTexts, 25),
  ending: fc.constantFrom('fin' as const, 'reset' as const),
});

export const linkPart: Part = {
  name: 'link',
  about: 'an instance under attack by agents: handshakes, frames of every kind, invalid bytes',
  share: 200,
  quick: 800,
  async open(start) {
    const target = await start();
    const machines = Array.from({ length: LANES }, () => new Machine());
    return feeder<LinkScript>({
      arbitrary: scripts,
      lanes: LANES,
      async feed(script, lane) {
        await target.revive();
        const machine = (machines[lane] as Machine).isWorn ? new Machine() : (machines[lane] as Machine);
        machines[lane] = machine;
        await new Attack(script, target, machine).run();
        return 1 + script.steps.length;
      },
      vitals: () => target.instance.vitals(),
      inspect: () => target.inspect(),
      close: () => target.stop(),
    });
  },
};

/**
 * The identity that a lane uses; its connections are counted, so that each supersedes the previous
 * one.
 */
class Machine {
  readonly serverUuid = randomUUID();
  readonly #incarnation = randomUUID();
  readonly #journalId = randomUUID();
  /**
   * The epoch of its last welcome: an agent that forgot it would be refused as one with an old
   * journal.
   */
  epoch = 0;
  #conn = 0;

  /** A server that reconnected more often would be refused for some seconds. */
  get isWorn(): boolean {
    return this.#conn >= RETURN_BURST;
  }

  hello(): string {
    this.#conn += 1;
    return JSON.stringify({
      type: 'hello',
      version: 1,
      capabilities: ['task:nop'],
      serverUuid: this.serverUuid,
      incarnation: this.#incarnation,
      conn: this.#conn,
      journalId: this.#journalId,
      epoch: this.epoch,
      bootId: 'boot',
      agentVersion: '0.1.0',
      sysinfoDigest: 'none',
    });
  }

  fill(text: string): string {
    const ids: Record<string, string> = {
      server: this.serverUuid,
      incarnation: this.#incarnation,
      journal: this.#journalId,
      task: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
      unknown: '00000000-0000-4000-8000-00000000dead',
    };
    return text.replace(/\{(\w+)\}/g, (whole, name: string) => ids[name] ?? whole);
  }
}

/** One connection, from its first byte until the instance has released it. */
class Attack {
  readonly #script: LinkScript;
  readonly #target: Target;
  readonly #machine: Machine;
  readonly #answers = new AnswerReader(['GET']);
  readonly #frames = new FrameReader({ expectMask: false });
  readonly #heard: HeardFrame[] = [];
  #isUpgraded = false;
  #isClosed = false;
  /** Whether the instance has announced the end in a close frame; then nothing waits for it. */
  #isOver = false;
  #failure: Error | undefined;
  #wake: () => void = () => undefined;

  constructor(script: LinkScript, target: Target, machine: Machine) {
    this.#script = script;
    this.#target = target;
    this.#machine = machine;
  }

  async run(): Promise<void> {
    const socket = connect({ port: this.#target.port, host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
    socket.on('error', () => undefined);
    for (const event of ['end', 'close']) socket.on(event, () => this.#ended());
    socket.on('data', (chunk) => this.#take(chunk));
    try {
      await this.#attack(socket);
      if (this.#failure !== undefined) throw new Wrong(this.#failure.message);
      this.#judge();
    } finally {
      letGo(socket);
    }
    const { instance } = this.#target;
    if (!instance.program.isAlive) throw new Wrong(`the instance died. ${instance.lastWords()}`, 'the instance died');
  }

  async #attack(socket: Socket): Promise<void> {
    const { handshake, steps, ending } = this.#script;
    const head = this.#head();
    if (handshake.kind === 'half') {
      socket.write(head.slice(0, handshake.bytes));
    } else {
      const early = handshake.kind === 'head' ? this.#greeting() : Buffer.alloc(0);
      socket.write(Buffer.concat([Buffer.from(head, 'latin1'), early]));
      await this.#wait(() => this.#isUpgraded || this.#answers.answers.length > 0 || this.#isOver, 'answer an upgrade');
      if (!this.#isUpgraded) return;
      if (handshake.kind !== 'head') socket.write(this.#greeting());
      if (this.#script.isJoined) await this.#join(socket);
      await this.#play(socket, steps);
      if (isReadable(steps)) await this.#askWhetherHeard(socket);
    }
    if (ending === 'reset') return;
    socket.end();
    await this.#wait(() => this.#isClosed, 'let go of a connection that its agent has ended');
  }

  #head(): string {
    const lines = [
      `GET /agents/${this.#machine.serverUuid}/link HTTP/1.1`,
      'Host: 127.0.0.1',
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    ];
    const head = `${lines.join('\r\n')}\r\n\r\n`;
    const { handshake } = this.#script;
    return handshake.kind === 'bad' ? (CHANGES[handshake.change]?.(head) ?? head) : head;
  }

  #greeting(): Buffer {
    return this.#script.isJoined ? bytesOf({ do: 'text', text: this.#machine.hello() }, true) : Buffer.alloc(0);
  }

  async #join(socket: Socket): Promise<void> {
    const welcome = () => this.#texts().find((text) => text.startsWith('{"type":"welcome"'));
    await this.#wait(() => welcome() !== undefined || this.#isOver, 'greet an agent');
    const text = welcome();
    if (text === undefined) return;
    const { epoch } = JSON.parse(text) as { epoch: number };
    this.#machine.epoch = Math.max(epoch, this.#machine.epoch);
    socket.write(bytesOf({ do: 'text', text: JSON.stringify({ type: 'inventory', epoch, tasks: [] }) }, true));
  }

  async #play(socket: Socket, steps: readonly Step[]): Promise<void> {
    for (const step of steps) {
      if (this.#isOver) return;
      const filled = 'text' in step ? { ...step, text: this.#machine.fill(step.text) } : step;
      socket.write(bytesOf(filled, true));
      if (step.do === 'pause') await new Promise((done) => setTimeout(done, 2));
    }
  }

  /** A peer that can still read answers a ping, or has closed. */
  async #askWhetherHeard(socket: Socket): Promise<void> {
    socket.write(bytesOf({ do: 'ping', payload: 'heard?' }, true));
    const isAnswered = () =>
      this.#heard.some(({ opcode, payload }) => opcode === 10 && payload.toString() === 'heard?');
    await this.#wait(() => isAnswered() || this.#isOver, 'answer a ping after all that it was sent');
  }

  #take(chunk: Buffer): void {
    try {
      if (this.#isUpgraded) this.#heard.push(...this.#frames.push(chunk));
      else this.#takeAnswer(chunk);
      this.#isOver ||= this.#heard.some(({ opcode }) => opcode === 8);
    } catch (error) {
      this.#failure = error as Error;
      this.#ended();
    }
    this.#wake();
  }

  #takeAnswer(chunk: Buffer): void {
    this.#answers.push(chunk);
    if (this.#answers.answers[0]?.status !== 101) return;
    this.#isUpgraded = true;
    const end = chunk.indexOf('\r\n\r\n');
    this.#heard.push(...this.#frames.push(chunk.subarray(end + 4)));
  }

  #ended(): void {
    this.#isClosed = true;
    this.#isOver = true;
    this.#wake();
  }

  /** @throws Wrong when it does not happen. */
  async #wait(isThere: () => boolean, what: string): Promise<void> {
    const begin = Date.now();
    while (!isThere()) {
      if (Date.now() - begin > ANSWER_WITHIN_MS)
        throw new Wrong(`the instance did not ${what} within ${ANSWER_WITHIN_MS} ms`);
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, 1_000);
      this.#wake = resolve;
      await promise;
      clearTimeout(timer);
    }
  }

  #texts(): string[] {
    return this.#heard.filter(({ opcode }) => opcode === 1).map(({ payload }) => payload.toString());
  }

  /** Every frame of the instance itself must be valid, even to hostile agents. */
  #judge(): void {
    for (const answer of this.#answers.answers) {
      const complaint = complaintOf(answer, { operationId: 'AgentLink', method: 'GET' });
      if (complaint !== undefined) throw new Wrong(`an upgrade was answered with ${complaint}`);
    }
    for (const text of this.#texts()) {
      try {
        parseInstanceFrame(text);
      } catch (error) {
        throw new Wrong(
          `the instance sent ${text.slice(0, 300)}: ${(error as Error).message}`,
          (error as Error).message,
        );
      }
    }
    for (const { opcode, payload } of this.#heard) {
      if (opcode === 8 && !isCloseFrame(payload))
        throw new Wrong(`the instance closed with ${payload.toString('latin1')}`);
      if (![1, 8, 9, 10].includes(opcode)) throw new Wrong(`the instance sent a frame of opcode ${opcode}`);
    }
  }
}

/** RFC 6455, section 7.4: a code that may be sent, and a reason in UTF-8. */
export function isCloseFrame(payload: Buffer): boolean {
  if (payload.length === 0) return true;
  if (payload.length < 2) return false;
  const code = payload.readUInt16BE(0);
  const reason = payload.subarray(2);
  return code >= 1000 && ![1004, 1005, 1006].includes(code) && Buffer.from(reason.toString()).equals(reason);
}
