/**
 * Clients that take one lock in turn, each time at another instance, while instances come and go.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Zone } from '../support/fleet-harness.ts';

const QUEUE = { scope: 'upgrade', id: 'lock' };
const EXPIRES_IN_SECONDS = 60;
const HOLD_MS = 100;
const PATIENCE_MS = 60_000;

export class Locks {
  readonly #zone: Zone;
  readonly #violations: string[] = [];
  readonly #clients: Promise<void>[] = [];
  #turn = 0;
  #holders = 0;
  #isOver = false;
  held = 0;

  constructor(zone: Zone) {
    this.#zone = zone;
  }

  start(clients: number): void {
    for (let each = 0; each < clients; each += 1) this.#clients.push(this.#run());
  }

  async finish(): Promise<string[]> {
    this.#isOver = true;
    await Promise.all(this.#clients);
    return this.#violations;
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      try {
        await this.#holdOnce();
      } catch (error) {
        this.#violations.push(String(error));
        return;
      }
    }
  }

  async #holdOnce(): Promise<void> {
    const body = { ...QUEUE, action: 'test', expires_in: EXPIRES_IN_SECONDS };
    const { uuid } = (await this.#ask('POST', '/servers/default/tickets', body, [202])) as { uuid: string };
    await this.#ask('GET', `/tickets/${uuid}/wait?timeout=30`, undefined, [204]);
    this.#holders += 1;
    if (this.#holders > 1) this.#violations.push(`${this.#holders} hold the lock`);
    await sleep(HOLD_MS);
    this.#holders -= 1;
    this.held += 1;
    await this.#ask('PUT', `/tickets/${uuid}/release`, undefined, [204]);
  }

  /**
   * Tries the next instance until one answers as expected. A ticket whose answer was lost delays
   * others only until it expires.
   */
  async #ask(method: string, path: string, body: object | undefined, wished: readonly number[]): Promise<unknown> {
    const giveUpAt = Date.now() + PATIENCE_MS;
    for (let lastly = ''; Date.now() < giveUpAt; await sleep(100)) {
      const { url } = this.#zone.instances[this.#turn++ % this.#zone.instances.length] ?? { url: '' };
      try {
        const headers = { 'content-type': 'application/json' };
        const sent = body === undefined ? {} : { headers, body: JSON.stringify(body) };
        const response = await fetch(`${url}${path}`, { method, ...sent });
        const text = await response.text();
        if (wished.includes(response.status)) return text === '' ? undefined : JSON.parse(text);
        lastly = `${response.status} ${text}`;
        if (response.status < 500 && response.status !== 408) throw new Refusal(`${method} ${path}: ${lastly}`);
      } catch (error) {
        if (error instanceof Refusal) throw error;
      }
    }
    throw new Error(`${method} ${path}: not done in ${PATIENCE_MS} ms`);
  }
}

class Refusal extends Error {}
