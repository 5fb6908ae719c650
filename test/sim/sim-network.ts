/**
 * The network between agents and instances: connections that keep their order, each with its own
 * delay, whose ends learn of each other only by what arrives. The network can be cut in one
 * direction or both, without a FIN: data sent meanwhile arrives after the repair, because TCP sends
 * it again. A process that loses its power sends nothing more.
 */
import type { UpgradeRefusal } from '../../lib/agent/link/link-socket.ts';
import type { SeededRandom } from './seeded-random.ts';
import type { SimProcess } from './sim-process.ts';
import type { Story } from './story.ts';
import type { VirtualTime } from './virtual-time.ts';

/** What crosses a connection. */
export type Packet =
  /** The answer to the upgrade: the WebSocket is open, or the reason why not. */
  | { kind: 'answer'; refusal: UpgradeRefusal | undefined }
  | { kind: 'frame'; text: string }
  | { kind: 'ping' | 'pong'; text: string }
  /** A close frame, which the other side answers with its own. */
  | { kind: 'close'; reason: string }
  /** The TCP connection has ended, orderly or not. */
  | { kind: 'end' };

/** One end of a connection. */
export interface Peer {
  readonly process: SimProcess;
  /** Nothing comes after 'end'. */
  arrived(packet: Packet): void;
}

export interface NetworkTrouble {
  /** Added to each packet's delay. */
  slowMs: number;
  /**
   * The probability for each packet that it is sent again only later, with everything behind it
   * waiting.
   */
  loss: number;
  /** The probability for each frame about tasks that it arrives twice, the second time late. */
  repeats: number;
}

const KEPT_ARRIVALS = 20;
const CALM: NetworkTrouble = { slowMs: 0, loss: 0, repeats: 0 };

export class SimNetwork {
  readonly random: SeededRandom;
  readonly story: Story;
  readonly #time: VirtualTime;
  readonly #cuts = new Map<string, number>();
  readonly #channels = new Set<Channel>();
  trouble: NetworkTrouble = { ...CALM };

  constructor({ time, random, story }: { time: VirtualTime; random: SeededRandom; story: Story }) {
    this.#time = time;
    this.story = story;
    this.random = random;
  }

  get now(): number {
    return this.#time.now;
  }

  set(trouble: Partial<NetworkTrouble>): void {
    this.trouble = { ...this.trouble, ...trouble };
  }

  /** Nothing passes from `from` to `to` until as many repairs; `*` is every process. */
  cut(from: string, to: string): void {
    const way = `${from}>${to}`;
    this.#cuts.set(way, (this.#cuts.get(way) ?? 0) + 1);
  }

  restore(from: string, to: string): void {
    const way = `${from}>${to}`;
    const left = (this.#cuts.get(way) ?? 1) - 1;
    if (left > 0) this.#cuts.set(way, left);
    else this.#cuts.delete(way);
    for (const channel of [...this.#channels]) channel.flush();
  }

  isCut(from: string, to: string): boolean {
    return [`${from}>${to}`, `*>${to}`, `${from}>*`].some((way) => this.#cuts.has(way));
  }

  latencyMs(): number {
    return this.random.between(0.1, 2) + this.random.between(0, this.trouble.slowMs);
  }

  channel(from: Peer, to: Peer): Channel {
    const channel = new Channel(this, from, to);
    this.#channels.add(channel);
    return channel;
  }

  forget(channel: Channel): void {
    this.#channels.delete(channel);
  }

  /** Every connection between the two is reset, and both sides are notified. */
  reset(one: string, other: string): void {
    for (const channel of [...this.#channels]) {
      const ends = [channel.from.process.name, channel.to.process.name];
      if (ends.includes(one) && (other === '*' || ends.includes(other)))
        channel.to.process.receive(0.1, () => channel.to.arrived({ kind: 'end' }));
    }
  }
}

/** One direction of a connection. */
export class Channel {
  readonly from: Peer;
  readonly to: Peer;
  readonly #network: SimNetwork;
  #held: Packet[] = [];
  #lastAt = 0;
  /** When packets reached the other side's machine, the latest last; its process may be stopped. */
  readonly #arrivals: number[] = [];
  #isOver = false;

  constructor(network: SimNetwork, from: Peer, to: Peer) {
    this.#network = network;
    this.from = from;
    this.to = to;
  }

  /** All data that was sent. */
  bytesSent = 0;

  /** The data that the network has not accepted. */
  get bufferedBytes(): number {
    return this.#held.reduce((sum, packet) => sum + ('text' in packet ? packet.text.length : 0), 0);
  }

  /** When the last packet before `at` reached the other side's machine. */
  lastArrivalBefore(at: number): number | undefined {
    return this.#arrivals.findLast((arrival) => arrival <= at);
  }

  send(packet: Packet): void {
    if (this.#isOver) return;
    if (packet.kind === 'end') this.#isOver = true;
    if ('text' in packet) this.bytesSent += packet.text.length;
    this.#held.push(packet);
    this.flush();
  }

  /** Sends the held data as far as the network allows. */
  flush(): void {
    if (this.#network.isCut(this.from.process.name, this.to.process.name)) return;
    for (const packet of this.#held.splice(0)) this.#forward(packet);
    if (this.#isOver) this.#network.forget(this);
  }

  #forward(packet: Packet): void {
    const { random, trouble, now } = this.#network;
    const resentMs = random.chance(trouble.loss) ? random.between(200, 1500) : 0;
    const at = Math.max(this.#lastAt + 0.001, now + this.#network.latencyMs() + resentMs);
    this.#lastAt = at;
    this.#network.story.note(this.from.process.name, `to ${this.to.process.name}: ${summaryOf(packet)}`);
    this.#arrivals.push(at);
    if (this.#arrivals.length > KEPT_ARRIVALS) this.#arrivals.shift();
    this.to.process.receive(at - now, () => this.to.arrived(packet));
    if (packet.kind !== 'frame' || !isAboutTask(packet.text) || !random.chance(trouble.repeats)) return;
    this.to.process.receive(at - now + random.between(0, 3000), () => this.to.arrived(packet));
  }
}

const summaryOf = (packet: Packet) => `${packet.kind} ${'text' in packet ? packet.text.slice(0, 160) : ''}`.trimEnd();

const isAboutTask = (text: string) => /^\{"type":"task(_event|_end|_ack|_cancel)?"/.test(text);
