/**
 * A TCP proxy that can disturb its connections as a network does. It can cut them silently (both
 * ends keep an open socket that receives nothing), in one direction only, with a reset or with a
 * FIN. It can delay them or limit their bandwidth. It recognizes which server an agent link is for
 * by the first line that passes.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface ProxyPlan {
  /** The address it listens on; port 0 takes a free one. */
  host: string;
  port: number;
  target: { host: string; port: number };
}

/** Selects all connections, or those of one server's agent. */
type Which = { serverUuid?: string };

/** `up`: towards the target. */
export type Direction = 'up' | 'down';

interface Pair {
  near: Socket;
  far: Socket;
  serverUuid: string | undefined;
  /** Ended by this proxy: later data is dropped. */
  isFinished: boolean;
}

interface Piece {
  bytes: Buffer;
  at: number;
}

/** Most bytes held between two ends; then the sender is held up, as by a full window. */
const HELD_BYTES = 256 * 1024;

export class CuttableProxy {
  readonly #plan: ProxyPlan;
  readonly #server: Server;
  readonly #pairs = new Set<Pair>();
  #swallowed: 'all' | Set<string> = new Set();
  #swallowedWay: Direction | undefined;
  #healed = Promise.withResolvers<void>();
  #delayMs = 0;
  #bytesPerSecond = Number.POSITIVE_INFINITY;

  constructor(plan: ProxyPlan) {
    this.#plan = plan;
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (near) => this.#join(near));
  }

  static async start(plan: ProxyPlan): Promise<CuttableProxy> {
    const proxy = new CuttableProxy(plan);
    proxy.#server.listen(plan.port, plan.host);
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  /**
   * Stops passing data on (or data in that direction), and neither end notices. New connections are
   * accepted and pass nothing.
   */
  swallow({ serverUuid, only }: Which & { only?: Direction } = {}): void {
    this.#swallowedWay = only;
    if (serverUuid === undefined) this.#swallowed = 'all';
    else if (this.#swallowed !== 'all') this.#swallowed.add(serverUuid);
  }

  /**
   * Everything passes again, without delay or bandwidth limit. Held data arrives late, as
   * retransmissions would.
   */
  heal(): void {
    this.#swallowed = new Set();
    this.#delayMs = 0;
    this.#bytesPerSecond = Number.POSITIVE_INFINITY;
    this.#healed.resolve();
    this.#healed = Promise.withResolvers<void>();
  }

  /** Cuts with a reset at both ends; new connections pass. */
  reset(which: Which = {}): void {
    for (const { near, far } of this.#chosen(which)) {
      near.resetAndDestroy();
      far.resetAndDestroy();
    }
  }

  /** Cuts with a FIN to both ends; new connections pass. */
  finish(which: Which = {}): void {
    for (const pair of this.#chosen(which)) {
      pair.isFinished = true;
      pair.near.end();
      pair.far.end();
    }
  }

  /** Delays each piece of data by this time. */
  delay(ms: number): void {
    this.#delayMs = ms;
  }

  /** Limits the bandwidth of each direction of each connection. */
  throttle(bytesPerSecond: number): void {
    this.#bytesPerSecond = bytesPerSecond;
  }

  async stop(): Promise<void> {
    this.#server.close();
    for (const { near, far } of this.#pairs) {
      near.destroy();
      far.destroy();
    }
    this.heal();
    await once(this.#server, 'close');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #chosen({ serverUuid }: Which): Pair[] {
    return [...this.#pairs].filter((pair) => serverUuid === undefined || pair.serverUuid === serverUuid);
  }

  #join(near: Socket): void {
    const far = connect({ ...this.#plan.target, allowHalfOpen: true, noDelay: true });
    const pair: Pair = { near, far, serverUuid: undefined, isFinished: false };
    this.#pairs.add(pair);
    void Promise.all([this.#pass(pair, 'up'), this.#pass(pair, 'down')]).then(() => this.#pairs.delete(pair));
  }

  async #pass(pair: Pair, way: Direction): Promise<void> {
    const [from, to] = way === 'up' ? [pair.near, pair.far] : [pair.far, pair.near];
    try {
      for await (const { bytes, at } of piecesOf(from)) {
        pair.serverUuid ??= serverUuidOf(bytes);
        const early = at + this.#delayMs - performance.now();
        if (this.#delayMs > 0 && early > 0) await sleep(early);
        await this.#passage(pair, way);
        if (pair.isFinished) continue;
        if (!to.write(bytes)) await once(to, 'drain');
        const takesMs = (1000 * bytes.length) / this.#bytesPerSecond;
        if (takesMs > 1) await sleep(takesMs);
      }
      await this.#passage(pair, way);
      to.end();
    } catch {
      await this.#passage(pair, way);
      to.resetAndDestroy();
    }
  }

  async #passage({ serverUuid }: Pair, way: Direction): Promise<void> {
    while (this.#isSwallowed(serverUuid) && (this.#swallowedWay === undefined || this.#swallowedWay === way))
      await this.#healed.promise;
  }

  #isSwallowed(serverUuid: string | undefined): boolean {
    return this.#swallowed === 'all' || (serverUuid !== undefined && this.#swallowed.has(serverUuid));
  }
}

/**
 * Yields received data, each piece with its arrival time, from which a delay counts. @throws when
 * the connection breaks
 */
async function* piecesOf(from: Socket): AsyncGenerator<Piece> {
  const held: Piece[] = [];
  let heldBytes = 0;
  let isOver = false;
  let failed: Error | undefined;
  let moved = Promise.withResolvers<void>();
  from.on('data', (bytes: Buffer) => {
    held.push({ bytes, at: performance.now() });
    heldBytes += bytes.length;
    if (heldBytes > HELD_BYTES) from.pause();
    moved.resolve();
  });
  from.on('error', (error) => {
    failed = error;
  });
  for (const event of ['end', 'close'])
    from.on(event, () => {
      isOver = true;
      moved.resolve();
    });
  for (;;) {
    for (let piece = held.shift(); piece !== undefined; piece = held.shift()) {
      yield piece;
      heldBytes -= piece.bytes.length;
      if (from.isPaused()) from.resume();
    }
    if (failed !== undefined) throw failed;
    if (isOver) return;
    moved = Promise.withResolvers();
    await moved.promise;
  }
}

/** The agent link's first line names the server. */
function serverUuidOf(bytes: Buffer): string | undefined {
  return /^GET \/agents\/([0-9a-f-]{36})\/link /.exec(bytes.toString('latin1', 0, 200))?.[1];
}
