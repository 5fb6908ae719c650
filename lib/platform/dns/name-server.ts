/**
 * The name server for the instances: answers for the zone over UDP and TCP on one port. Started by
 * the supervisor. Input from the network cannot crash it, cannot make it send more than was asked,
 * and cannot exceed its bounds: a connection is closed when it is idle, sends too long a message,
 * or does not read its answers.
 *
 *      new ──start()──▶ listening ──stop()──▶ stopped
 */
import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, isIPv6, type Server, type Socket } from 'node:net';
import { CnapiError, messageOf } from '../errors.ts';
import { KeyedCounts } from '../limiting/keyed-counts.ts';
import type { Logger } from '../log.ts';
import { type Random, shuffled } from '../random.ts';
import type { Clock, Timer } from '../time/clock.ts';
import { FrameReader, frame } from './frames.ts';
import { replyTo } from './message.ts';
import { answerQuestion, type Zone, type ZoneAnswer, type ZoneInstance, type ZoneQuestion } from './zone.ts';

const MAX_QUERY_BYTES = 4_096;
const MAX_CONNECTIONS = 64;
/** Per client address, so that one client cannot keep out the others. */
const MAX_CONNECTIONS_PER_CLIENT = 8;
const MAX_UNSENT_BYTES = 256 * 1_024;
const IDLE_MS = 10_000;
/** Attempts to find a port when any will do: a port that is free for TCP may be in use for UDP. */
const PORT_ATTEMPTS = 10;

export interface NameServerDeps {
  host: string;
  /** The port for UDP and TCP; 0 takes any port that is free for both. */
  port: number;
  zone: Pick<Zone, 'datacenter' | 'domain'>;
  /** Returns the live instances; called for each query. */
  instances: () => readonly ZoneInstance[];
  clock: Clock;
  random: Random;
  log: Logger;
}

/** The server cannot listen on the address; nothing was started. */
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
  readonly #instances: () => readonly ZoneInstance[];
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Logger;
  readonly #connections = new Set<Socket>();
  readonly #connectionsByClient = new KeyedCounts();
  #tcp: Server | undefined;
  #udp: UdpSocket | undefined;

  constructor({ host, port, zone, instances, clock, random, log }: NameServerDeps) {
    this.#host = host;
    this.#wantedPort = port;
    this.#zone = { datacenter: zone.datacenter, domain: zone.domain, address: host };
    this.#instances = instances;
    this.#clock = clock;
    this.#random = random;
    this.#log = log;
  }

  /** The port on which the server listens. */
  get port(): number {
    const address = this.#tcp?.address();
    return typeof address === 'object' && address !== null ? address.port : this.#wantedPort;
  }

  /**
   * @throws NameServerAddressError when the address is in use or does not belong to this machine
   */
  async start(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#listen();
        break;
      } catch (err) {
        await this.stop();
        if (this.#wantedPort !== 0 || attempt === PORT_ATTEMPTS) {
          throw new NameServerAddressError(this.#host, this.#wantedPort, err);
        }
      }
    }
    const { host, port } = { host: this.#host, port: this.port };
    this.#log.info({ host, port, zone: this.#zone }, 'dns: name server listening');
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
    tcp.maxConnections = MAX_CONNECTIONS;
    this.#tcp = tcp;
    tcp.listen(this.#wantedPort, this.#host);
    await once(tcp, 'listening');
    const udp = createSocket(isIPv6(this.#host) ? 'udp6' : 'udp4');
    this.#udp = udp;
    udp.bind(this.port, this.#host);
    await once(udp, 'listening');
    udp.on('message', (bytes, peer) => this.#onDatagram(udp, bytes, peer));
    for (const socket of [tcp, udp]) {
      socket.on('error', (err) => this.#log.warn({ err }, `dns: name server socket: ${err.message}`));
    }
  }

  #onDatagram(udp: UdpSocket, bytes: Buffer, peer: RemoteInfo): void {
    const reply = replyTo(bytes, 'udp', (question) => this.#answer(question));
    // A reply that cannot be sent is treated as lost: the client asks again.
    if (reply) udp.send(reply, peer.port, peer.address, () => undefined);
  }

  #onConnection(socket: Socket): void {
    const client = socket.remoteAddress ?? '';
    if (this.#connectionsByClient.of(client) >= MAX_CONNECTIONS_PER_CLIENT) return void socket.destroy();
    this.#connectionsByClient.add(client);
    const frames = new FrameReader(MAX_QUERY_BYTES);
    let idle: Timer = this.#clock.after(IDLE_MS, () => socket.destroy());
    this.#connections.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      idle.cancel();
      this.#connections.delete(socket);
      this.#connectionsByClient.add(client, -1);
    });
    socket.on('data', (chunk) => {
      const queries = frames.push(chunk);
      if (queries === undefined || !this.#replyAll(socket, queries)) return void socket.destroy();
      if (queries.length === 0) return;
      // Only complete queries count as activity, so bytes that arrive one by one do not keep a
      // connection open.
      idle.cancel();
      idle = this.#clock.after(IDLE_MS, () => socket.destroy());
    });
  }

  /**
   * Sends the replies in order. Returns false when a query gets no reply or the client does not
   * read its replies.
   */
  #replyAll(socket: Socket, queries: readonly Buffer[]): boolean {
    return queries.every((query) => {
      const reply = replyTo(query, 'tcp', (question) => this.#answer(question));
      if (reply === undefined || socket.writableLength > MAX_UNSENT_BYTES) return false;
      socket.write(frame(reply));
      return true;
    });
  }

  #answer(question: ZoneQuestion): ZoneAnswer {
    return answerQuestion(this.#zone, shuffled(this.#instances(), this.#random), question);
  }
}
