/**
 * A TCP proxy whose connections can be cut in the ways a network cuts them: without a word (both ends keep an open socket on
 * which nothing comes any more), with a reset, or slowed down. Of the agent link it knows which server a connection is for,
 * by the first line that passes.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface ProxyPlan {
  /** Where it listens; port 0 takes a free one. */
  host: string;
  port: number;
  target: { host: string; port: number };
}

/** Which connections: all, or those of one server's agent. */
type Which = { serverUuid?: string };

interface Pair {
  near: Socket;
  far: Socket;
  serverUuid: string | undefined;
}

export class CuttableProxy {
  readonly #plan: ProxyPlan;
  readonly #server: Server;
  readonly #pairs = new Set<Pair>();
  #swallowed: 'all' | Set<string> = new Set();
  #healed = Promise.withResolvers<void>();
  #delayMs = 0;

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

  /** From now on nothing passes either way, and no end hears of it. New connections are taken and lead nowhere. */
  swallow({ serverUuid }: Which = {}): void {
    if (serverUuid === undefined) this.#swallowed = 'all';
    else if (this.#swallowed !== 'all') this.#swallowed.add(serverUuid);
  }

  /** Everything passes again; what was swallowed comes late, as retransmissions would. */
  heal(): void {
    this.#swallowed = new Set();
    this.#healed.resolve();
    this.#healed = Promise.withResolvers<void>();
  }

  /** Cuts with a reset at both ends; new connections pass. */
  reset({ serverUuid }: Which = {}): void {
    for (const pair of this.#pairs) {
      if (serverUuid !== undefined && pair.serverUuid !== serverUuid) continue;
      pair.near.resetAndDestroy();
      pair.far.resetAndDestroy();
    }
  }

  /** Each piece passes this much later. */
  delay(ms: number): void {
    this.#delayMs = ms;
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

  #join(near: Socket): void {
    const far = connect({ ...this.#plan.target, allowHalfOpen: true, noDelay: true });
    const pair: Pair = { near, far, serverUuid: undefined };
    this.#pairs.add(pair);
    void Promise.all([this.#pass(pair, near, far), this.#pass(pair, far, near)]).then(() => this.#pairs.delete(pair));
  }

  async #pass(pair: Pair, from: Socket, to: Socket): Promise<void> {
    from.on('error', () => undefined);
    try {
      for await (const bytes of from.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
        pair.serverUuid ??= serverUuidOf(bytes);
        if (this.#delayMs > 0) await sleep(this.#delayMs);
        await this.#passage(pair);
        if (!to.write(bytes)) await once(to, 'drain');
      }
      await this.#passage(pair);
      to.end();
    } catch {
      await this.#passage(pair);
      to.resetAndDestroy();
    }
  }

  async #passage({ serverUuid }: Pair): Promise<void> {
    while (this.#swallowed === 'all' || (serverUuid !== undefined && this.#swallowed.has(serverUuid)))
      await this.#healed.promise;
  }
}

/** The agent link's first line names the server. */
function serverUuidOf(bytes: Buffer): string | undefined {
  return /^GET \/agents\/([0-9a-f-]{36})\/link /.exec(bytes.toString('latin1', 0, 200))?.[1];
}
