/**
 * A TCP port for the caller of one stream, who speaks what a codec of this folder reads. It has no
 * token: only the address that has asked for it may connect, once and within 30 seconds. Created by
 * docker-task.ts; docker-port-state.ts draws its states.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { normalizeAddress } from '../../../platform/network/networks.ts';
import { resetConnection } from '../../../platform/network/reset-connection.ts';
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import { keepAlive, type StreamSocketEvents } from '../../../protocol/streams/stream-socket.ts';
import type { CallerEnd } from '../../streams/caller-stream.ts';
import { END_OF_INPUT } from './docker-lines.ts';
import { type PortEffect, type PortEvent, type PortState, stepPort } from './docker-port-state.ts';
import type { PortCodec } from './port-codec.ts';

interface DockerPortOptions {
  /** Address of the caller; connections from other addresses are refused. */
  address: string;
  /** False: the program reads nothing. */
  hasInput: boolean;
  codec: PortCodec;
}

const CONNECT_WITHIN_MS = 30_000;
/** Bytes kept until the caller connects. Above them the agent must pause. */
const MAX_KEPT = 256 * 1024;

/** Listens at a free port, for a DockerPort. */
export async function listenForCaller(host: string): Promise<{ server: Server; port: number }> {
  // The input may end before the output.
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  server.listen({ host, port: 0 });
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port };
}

export class DockerPort implements CallerEnd {
  readonly #server: Server;
  readonly #address: string;
  readonly #hasInput: boolean;
  readonly #events: StreamSocketEvents;
  readonly #codec: PortCodec;
  readonly #timer: Timer;
  #state: PortState = 'listening';
  #socket: Socket | undefined;
  #kept: (Buffer | string)[] = [];
  #keptSize = 0;
  #isFull = false;
  /** What else the caller sends is dropped. */
  #isRefused = false;
  #isTerminated = false;
  #reason = 'nobody has connected to the port in time';

  constructor(
    server: Server,
    { clock, address, hasInput, codec }: DockerPortOptions & { clock: Clock },
    events: StreamSocketEvents,
  ) {
    this.#server = server;
    this.#address = normalizeAddress(address);
    this.#hasInput = hasInput;
    this.#events = events;
    this.#codec = codec;
    this.#timer = clock.after(CONNECT_WITHIN_MS, () => this.#on({ type: 'late' }));
    server.on('connection', (socket) => this.#connected(socket));
    server.on('error', () => this.#on({ type: 'late' }));
  }

  send(message: Buffer): boolean {
    if (this.#state !== 'listening' && this.#state !== 'connected') return true;
    const output = this.#codec.write(message);
    if (output.length === 0) return !this.#isFull;
    if (this.#socket === undefined) {
      this.#kept.push(output);
      this.#keptSize += output.length;
      if (this.#keptSize > MAX_KEPT) this.#isFull = true;
    } else if (!this.#socket.write(output)) this.#isFull = true;
    return !this.#isFull;
  }

  pause(): void {
    this.#socket?.pause();
  }

  resume(): void {
    this.#socket?.resume();
  }

  closeWhenSent(): void {
    this.#on({ type: this.#codec.isWhole ? 'ended' : 'cut' });
  }

  /** Closes it because the caller has broken the protocol. */
  refuse(reason: string): void {
    this.#reason = reason;
    this.#on({ type: 'cut' });
  }

  /** Emits nothing more. */
  terminate(): void {
    this.#isTerminated = true;
    this.#on({ type: 'cut' });
  }

  #connected(socket: Socket): void {
    socket.on('error', (error) => {
      if (socket === this.#socket) this.#reason = error.message;
    });
    if (normalizeAddress(socket.remoteAddress ?? '') === this.#address) this.#on({ type: 'connected' }, socket);
    else socket.destroy();
  }

  /** `socket`: the one that has connected. */
  #on(event: PortEvent, socket?: Socket): void {
    const { state, effects } = stepPort(this.#state, event);
    this.#state = state;
    for (const effect of effects) this.#carryOut(effect, socket);
  }

  #carryOut(effect: PortEffect, socket: Socket | undefined): void {
    switch (effect.do) {
      case 'accept':
        return socket && this.#accept(socket);
      case 'refuse':
        return void socket?.destroy();
      case 'flush':
        // What the caller still sends has to be read, or the kernel would drop what it has not
        // taken.
        this.#socket?.resume();
        return void this.#socket?.end();
      case 'close':
        this.#timer.cancel();
        this.#server.close();
        if (this.#codec.isWhole) this.#socket?.destroy();
        else if (this.#socket !== undefined) resetConnection(this.#socket);
        this.#kept = [];
        if (!this.#isTerminated) this.#events.closed(this.#reason);
        return;
      default:
        return effect.do satisfies never;
    }
  }

  #accept(socket: Socket): void {
    this.#socket = socket;
    this.#timer.cancel();
    this.#server.close();
    keepAlive(socket);
    this.#reason = 'the caller has left';
    socket.on('data', (bytes) => this.#receive(bytes));
    socket.on('end', () => this.#endInput());
    socket.on('drain', () => this.#drained());
    socket.on('close', () => this.#on({ type: 'broken' }));
    const taken = this.#kept.map((output) => socket.write(output));
    this.#kept = [];
    if (taken.at(-1) !== false) this.#drained();
    if (!this.#hasInput && this.#state === 'connected') this.#events.message(END_OF_INPUT, true);
  }

  #receive(bytes: Buffer): void {
    if (this.#state !== 'connected' || this.#isRefused) return;
    this.#pass(this.#codec.read(bytes));
  }

  #endInput(): void {
    if (this.#state === 'connected' && !this.#isRefused) this.#pass(this.#codec.end());
  }

  #pass(input: ReturnType<PortCodec['read']>): void {
    if ('refused' in input) {
      this.#isRefused = true;
      if (input.lastMessages === undefined) return this.refuse(input.refused);
      this.#reason = input.refused;
    }
    const messages = 'refused' in input ? (input.lastMessages ?? []) : input;
    if (this.#hasInput) for (const message of messages) this.#events.message(message, true);
  }

  #drained(): void {
    if (!this.#isFull) return;
    this.#isFull = false;
    this.#events.drained();
  }
}
