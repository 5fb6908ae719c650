/**
 * Callers that go to the next instance when a connection is refused, as behind DNS, and do nothing
 * else. They send requests without pause over persistent connections, each task with its own key.
 * Any other error is a failure. A request that is cut off before its answer is repeated, once for
 * each instance that closes its listening socket: the system may accept a connection between the
 * instance's last check and the close (docs/scaling.md, "A drain, step by step").
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Zone } from './fleet-harness.ts';

const PAUSE_MS = 20;

export class PlainCaller {
  readonly failures: string[] = [];
  answers = 0;
  refused = 0;
  #cut: string[] = [];
  readonly #urls: readonly string[];
  readonly #loops: Promise<void>[] = [];
  #next = 0;
  #isOver = false;

  constructor(zone: Zone) {
    this.#urls = zone.instances.map(({ url }) => url);
  }

  start(serverUuid: string): void {
    this.#loop(() => this.#ask('GET', '/servers?limit=20&extras=status'));
    this.#loop(() => this.#ask('GET', `/servers/${serverUuid}`));
    this.#loop(async () => {
      const created = await this.#ask<{ id: string }>('POST', `/servers/${serverUuid}/nop`);
      const task = created && (await this.#ask<{ status: string }>('GET', `/tasks/${created.id}/wait?timeout=30`));
      if (task !== undefined && task.status !== 'complete') this.failures.push(`the task ended as ${task.status}`);
    });
  }

  async finish(): Promise<string[]> {
    this.#isOver = true;
    await Promise.all(this.#loops);
    if (this.#cut.length > this.#urls.length) this.failures.push(...this.#cut);
    if (this.answers === 0) this.failures.push('nothing was ever answered');
    return this.failures;
  }

  #loop(work: () => Promise<unknown>): void {
    const run = async () => {
      while (!this.#isOver) {
        await work();
        await sleep(PAUSE_MS);
      }
    };
    this.#loops.push(run());
  }

  async #ask<Body>(method: string, path: string): Promise<Body | undefined> {
    const headers = { 'Idempotency-Key': randomUUID() };
    for (let tries = 0; tries < 3 * this.#urls.length; tries++) {
      const url = this.#urls[this.#next++ % this.#urls.length] as string;
      try {
        const response = await fetch(`${url}${path}`, { method, headers, signal: AbortSignal.timeout(60_000) });
        const text = await response.text();
        this.answers += 1;
        if (response.status < 300) return JSON.parse(text) as Body;
        this.failures.push(`${method} ${path}: ${response.status} ${text}`);
        return undefined;
      } catch (error) {
        const { code, message, syscall } = ((error as Error).cause ?? error) as NodeJS.ErrnoException;
        // A reset while connecting also counts as refused: no request had been sent.
        const isRefused = code === 'ECONNREFUSED' || syscall === 'connect';
        const failure = `${method} ${path} at ${url}: ${code} ${message}`;
        if (isRefused) this.refused += 1;
        else if (code === 'ECONNRESET') this.#cut.push(failure);
        else return void this.failures.push(failure);
      }
    }
    this.failures.push(`${method} ${path}: every instance refused`);
    return undefined;
  }
}
