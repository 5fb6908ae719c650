/**
 * The name server for the instances: answers the zone over UDP and TCP on one port. Started by the supervisor. Nothing
 * from the network can crash it, make it say more than it was asked, or hold more than its bounds: a connection is
 * closed when idle, over-long, or not reading what it asked for.
 *
 *     new ──start()──▶ listening ──stop()──▶ stopped
 */
import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, isIPv6, type Server, type Socket } from 'node:net';
import { CnapiError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock, Timer } from '../ports/clock.ts';
import { type Random, shuffled } from '../ports/random.ts';
import { FrameReader, frame } from './frames.ts';
import { replyTo } from './message.ts';
import { answerQuestion, type Instance, type Zone, type ZoneAnswer, type ZoneQuestion } from './zone.ts';

const maxQueryBytes = 4_096;
const maxConnections = 64;
const maxUnsentBytes = 256 * 1_024;
const idleMs = 10_000;
/** Ports tried when any will do: one that is free for TCP may be taken for UDP. */
const portAttempts = 10;

export interface NameServerDependencies {
  host: string;
  /** The port for UDP and TCP; 0 takes any that is free for both. */
  port: number;
  zone: Pick<Zone, 'datacenter' | 'domain'>;
  /** Those who live now; asked for each query. */
  instances: () => readonly Instance[];
  clock: Clock;
  random: Random;
  log: Logger;
}

/** The address cannot be listened on; nothing was started. */
export class NameServerAddressError extends CnapiError {
  constructor(host: string, port: number, cause: unknown) {
    super('NameServerAddress', 500, `The name server cannot listen on ${host} port ${port}: ${messageOf(cause)}`, {
      cause,
    });
  }
}

export class NameServer {
  readonly #host: string;
  readonly #wantedPort: number;
  readonly #zone: Zone;
  readonly #instances: () => readonly Instance[];
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Logger;
  readonly #connections = new Set<Socket>();
  #tcp: Server | undefined;
  #udp: UdpSocket | undefined;

  constructor({ host, port, zone, instances, clock, random, log }: NameServerDependencies) {
    this.#host = host;
    this.#wantedPort = port;
    this.#zone = { datacenter: zone.datacenter, domain: zone.domain, address: host };
    this.#instances = instances;
    this.#clock = clock;
    this.#random = random;
    this.#log = log;
  }

  /** The port that is listened on. */
  get port(): number {
    const address = this.#tcp?.address();
    return typeof address === 'object' && address !== null ? address.port : this.#wantedPort;
  }

  /** @throws NameServerAddressError when the address is taken or not ours. */
  async start(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#listen();
        break;
      } catch (err) {
        await this.stop();
        if (this.#wantedPort !== 0 || attempt === portAttempts) {
          throw new NameServerAddressError(this.#host, this.#wantedPort, err);
        }
      }
    }
    const { host, port } = { host: this.#host, port: this.port };
    this.#log.info({ host, port, zone: this.#zone }, 'name server listening');
  }

  async stop(): Promise<void> {
    const [tcp, udp] = [this.#tcp, this.#udp];
    this.#tcp = undefined;
    this.#udp = undefined;
    for (const connection of this.#connections) connection.destroy();
    await Promise.all([
      tcp?.listening && new Promise((resolve) => tcp.close(resolve)),
      udp && new Promise<void>((resolve) => udp.close(resolve)),
    ]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #listen(): Promise<void> {
    const tcp = createServer((socket) => this.#onConnection(socket));
    tcp.maxConnections = maxConnections;
    this.#tcp = tcp;
    tcp.listen(this.#wantedPort, this.#host);
    await once(tcp, 'listening');
    const udp = createSocket(isIPv6(this.#host) ? 'udp6' : 'udp4');
    this.#udp = udp;
    udp.bind(this.port, this.#host);
    await once(udp, 'listening');
    udp.on('message', (bytes, peer) => this.#onDatagram(udp, bytes, peer));
    for (const socket of [tcp, udp]) {
      socket.on('error', (err) => this.#log.warn({ err }, `name server socket: ${err.message}`));
    }
  }

  #onDatagram(udp: UdpSocket, bytes: Buffer, peer: RemoteInfo): void {
    const reply = replyTo(bytes, 'udp', (question) => this.#answer(question));
    // A reply that cannot be sent is one that got lost: the client asks again.
    if (reply) udp.send(reply, peer.port, peer.address, () => undefined);
  }

  #onConnection(socket: Socket): void {
    const frames = new FrameReader(maxQueryBytes);
    let idle: Timer = this.#clock.after(idleMs, () => socket.destroy());
    this.#connections.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      idle.cancel();
      this.#connections.delete(socket);
    });
    socket.on('data', (chunk) => {
      const queries = frames.push(chunk);
      if (queries === undefined || !this.#replyAll(socket, queries)) return void socket.destroy();
      if (queries.length === 0) return;
      // Only whole queries count as life: bytes in drips do not hold a connection.
      idle.cancel();
      idle = this.#clock.after(idleMs, () => socket.destroy());
    });
  }

  /** Answers in order; false when there is no answer to give or the client does not take them. */
  #replyAll(socket: Socket, queries: readonly Buffer[]): boolean {
    return queries.every((query) => {
      const reply = replyTo(query, 'tcp', (question) => this.#answer(question));
      if (reply === undefined || socket.writableLength > maxUnsentBytes) return false;
      socket.write(frame(reply));
      return true;
    });
  }

  #answer(question: ZoneQuestion): ZoneAnswer {
    return answerQuestion(this.#zone, shuffled(this.#instances(), this.#random), question);
  }
}
