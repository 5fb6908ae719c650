/**
 * A WebSocket of an agent to an instance over the simulated network: the agent's link driver dials
 * its end, and the instance's connection is given the other. It behaves like `ws`: answers pings by
 * itself, and a close with a close.
 */
import { WebSocket } from 'ws';
import type { LinkSocket, LinkSocketEvents, UpgradeRefusal } from '../../lib/agent/link/link-socket.ts';
import type { AgentSocket, AgentStream } from '../../lib/control/link/agent-socket.ts';
import { closeReason } from '../../lib/protocol/link/close-reason.ts';
import type { Channel, Packet, Peer, SimNetwork } from './sim-network.ts';
import type { SimProcess } from './sim-process.ts';

/** The listener for upgrades at an address. */
export interface LinkIngress {
  process: SimProcess;
  /** The processing time of one frame. */
  frameMs: number;
  /** The instance reads the request of an agent that has given up. */
  abandoned(): void;
  /** If undefined, the WebSocket is open over these. */
  upgrade(serverUuid: string, end: InstanceEnd): UpgradeRefusal | undefined;
}

interface AgentEndDeps {
  process: SimProcess;
  network: SimNetwork;
  events: LinkSocketEvents;
  /** Called with each frame. */
  sent: (text: string) => void;
}

/** Connects; fails where no instance listens or the network is cut. */
export class AgentEnd implements LinkSocket, Peer {
  readonly process: SimProcess;
  readonly #network: SimNetwork;
  readonly #events: LinkSocketEvents;
  readonly #sent: (text: string) => void;
  #out: Channel | undefined;
  #state: 'connecting' | 'open' | 'closing' | 'over' = 'connecting';

  constructor({ process, network, events, sent }: AgentEndDeps) {
    this.process = process;
    this.#network = network;
    this.#events = events;
    this.#sent = sent;
  }

  /** `find` is called when the request arrives. */
  connect(address: { name: string; find: () => LinkIngress | undefined }, serverUuid: string): void {
    const { name, find } = address;
    const agent = this.process.name;
    if (this.#network.isCut(agent, name) || this.#network.isCut(name, agent)) return;
    const refused = () => this.process.receive(0.2, () => this.#end('connect ECONNREFUSED'));
    const ingress = find();
    if (ingress === undefined || ingress.process.isDead) return void refused();
    ingress.process.receive(this.#network.latencyMs(), () => {
      if (this.process.isDead || this.#state !== 'connecting') return ingress.abandoned();
      if (find() !== ingress) return void refused();
      this.#upgrade(ingress, serverUuid);
    });
    ingress.process.onKill(() =>
      this.process.receive(0.3, () => this.#state === 'connecting' && this.#end('socket hang up')),
    );
  }

  get bufferedBytes(): number {
    return this.#out?.bufferedBytes ?? 0;
  }

  /** An agent of the simulation reads everything. */
  consumeValues(): void {}

  send(text: string): void {
    if (this.#state !== 'open') return;
    this.#sent(text);
    this.#out?.send({ kind: 'frame', text });
  }

  close(_code: number, reason: string): void {
    const wasOpen = this.#state === 'open';
    this.#state = 'over';
    if (!wasOpen) return this.#out?.send({ kind: 'end' });
    this.#out?.send({ kind: 'close', reason: closeReason(reason).toString() });
    this.process.clock.after(1000, () => this.#out?.send({ kind: 'end' }));
  }

  /** The process of this end is gone: the other end is notified, unless the power failed too. */
  vanish(isSilent: boolean): void {
    this.#state = 'over';
    if (!isSilent) this.#out?.send({ kind: 'end' });
  }

  arrived(packet: Packet): void {
    if (packet.kind === 'answer') return this.#answered(packet.refusal);
    if (packet.kind === 'end') return this.#end('closed with 1006');
    if (this.#state !== 'open') return;
    this.#events.heard();
    if (packet.kind === 'ping') this.#out?.send({ kind: 'pong', text: packet.text });
    else if (packet.kind === 'frame') this.#events.received(packet.text);
    else if (packet.kind === 'close') {
      this.#out?.send({ kind: 'end' });
      this.#end(`closed with 1000 ${packet.reason}`);
    }
  }

  #upgrade(ingress: LinkIngress, serverUuid: string): void {
    const back = new InstanceEnd({ ingress, network: this.#network, agent: this });
    this.#out = this.#network.channel(this, back);
    back.incoming = this.#out;
    this.process.onKill(() => this.vanish(this.process.isPowerless));
    back.answer(ingress.upgrade(serverUuid, back));
  }

  #answered(refusal: UpgradeRefusal | undefined): void {
    if (this.#state !== 'connecting') return;
    if (refusal !== undefined) return this.#end(`upgrade refused with HTTP ${refusal.status}`, refusal);
    this.#state = 'open';
    this.#events.opened();
  }

  #end(reason: string, refusal?: UpgradeRefusal): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#events.closed(reason, refusal);
  }
}

type Listeners = {
  message: (data: Buffer, isBinary: boolean) => void;
  pong: (data: Buffer) => void;
  error: (error: Error) => void;
  close: () => void;
};

/** The instance's end, which its connection is given. */
export class InstanceEnd implements AgentSocket, Peer {
  readonly process: SimProcess;
  readonly stream: AgentStream;
  readonly #frameMs: number;
  readonly #network: SimNetwork;
  readonly #out: Channel;
  readonly #listeners: Partial<Listeners> = {};
  #heard: (chunk: Buffer) => void = () => {};
  #unread: Packet[] | undefined;
  #isOver = false;
  /** The data of the agent arrives over it. */
  incoming: Channel | undefined;
  /** The epoch of the session that it was welcomed to. */
  epoch: number | undefined;
  /** When this side ended it. */
  leftAt: number | undefined;

  constructor({ ingress, network, agent }: { ingress: LinkIngress; network: SimNetwork; agent: AgentEnd }) {
    const { process, frameMs } = ingress;
    this.process = process;
    this.#frameMs = frameMs;
    this.#network = network;
    this.#out = network.channel(this, agent);
    const out = this.#out;
    this.stream = {
      get bytesWritten() {
        return out.bytesSent;
      },
      remoteAddress: agent.process.name,
      on: (_event, listener) => {
        this.#heard = listener;
      },
      // Two bytes of header, see lib/control/link/short-frame.ts.
      write: (text) => this.send(text.slice(2)),
    };
    process.onKill(() => {
      if (!process.isPowerless) this.#out.send({ kind: 'end' });
    });
  }

  /** The answer to the upgrade; a refusal ends it. */
  answer(refusal: UpgradeRefusal | undefined): void {
    this.#out.send({ kind: 'answer', refusal });
    if (refusal === undefined) return;
    this.#isOver = true;
    this.#out.send({ kind: 'end' });
  }

  get bufferedAmount(): number {
    return this.#out.bufferedBytes;
  }

  get readyState(): number {
    return this.#isOver ? WebSocket.CLOSED : WebSocket.OPEN;
  }

  on<Name extends keyof Listeners>(event: Name, listener: Listeners[Name]): void {
    this.#listeners[event] = listener as Partial<Listeners>[Name];
  }

  send(text: string): void {
    if (this.#isOver) return;
    if (text.startsWith('{"type":"welcome"')) this.epoch = (JSON.parse(text) as { epoch: number }).epoch;
    this.#out.send({ kind: 'frame', text });
  }

  ping(text: string): void {
    if (!this.#isOver) this.#out.send({ kind: 'ping', text });
  }

  pause(): void {
    this.#unread ??= [];
  }

  resume(): void {
    const unread = this.#unread ?? [];
    this.#unread = undefined;
    for (const packet of unread) this.arrived(packet);
  }

  close(_code: number, reason: string): void {
    this.leftAt ??= this.#network.now;
    if (!this.#isOver) this.#out.send({ kind: 'close', reason });
  }

  terminate(): void {
    this.leftAt ??= this.#network.now;
    if (this.#isOver) return;
    this.#out.send({ kind: 'end' });
    this.#end();
  }

  arrived(packet: Packet): void {
    if (this.#isOver) return;
    if (this.#unread !== undefined) return void this.#unread.push(packet);
    if (packet.kind === 'end') return this.#end();
    this.process.loop.work(this.#frameMs);
    this.#heard(framed('text' in packet ? packet.text : ''));
    if (this.#isOver) return;
    if (packet.kind === 'frame') this.#listeners.message?.(Buffer.from(packet.text), false);
    else if (packet.kind === 'pong') this.#listeners.pong?.(Buffer.from(packet.text));
    else if (packet.kind === 'close') {
      this.#out.send({ kind: 'close', reason: packet.reason });
      this.#out.send({ kind: 'end' });
      this.#end();
    }
  }

  /** `ws` reports it in a later turn. */
  #end(): void {
    this.#isOver = true;
    this.process.receive(0, () => this.#listeners.close?.());
  }
}

/** A whole frame of RFC 6455, section 5.2, without a mask, which no code reads here. */
function framed(text: string): Buffer {
  const payload = Buffer.from(text);
  const head = Buffer.from([0x81, 127, 0, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(payload.length, 6);
  return Buffer.concat([head, payload]);
}
