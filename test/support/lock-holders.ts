/**
 * Callers that use locks as intended, over REST and any instance, while faults happen. Each creates
 * a ticket, waits, renews it to prove that it holds the lock, checks that it is alone, and releases
 * it. It reports a violation when it is not alone.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

export interface LockPlan {
  urls: readonly string[];
  /** Ids of queues, all of the server `default`. */
  queues: readonly string[];
  callers: number;
}

interface Answer {
  status: number;
  body: { uuid?: string; message?: string };
}

/**
 * Longer than any fault that must not cost a lock. A lost answer leaves its ticket for that long.
 */
const EXPIRES_IN_SECONDS = 10;
const WAIT_SECONDS = 5;
const ANSWER_WITHIN_MS = 8_000;

export class LockHolders {
  readonly violations: string[] = [];
  /** How often a lock was held, by queue. */
  readonly held = new Map<string, number>();
  readonly #plan: LockPlan;
  readonly #holders = new Map<string, string>();
  #running: Promise<void>[] = [];
  #isOver = false;

  constructor(plan: LockPlan) {
    this.#plan = plan;
  }

  start(): void {
    const { callers, queues } = this.#plan;
    this.#running = Array.from({ length: callers }, (_, n) => this.#run(queues[n % queues.length] ?? ''));
  }

  /** Finishes what was begun; returns the violations. */
  async finish(): Promise<string[]> {
    this.#isOver = true;
    await Promise.all(this.#running);
    return this.violations;
  }

  async #run(queue: string): Promise<void> {
    while (!this.#isOver) {
      const uuid = await this.#create(queue);
      if (uuid === undefined || !(await this.#acquire(uuid))) continue;
      const other = this.#holders.get(queue);
      if (other !== undefined) this.violations.push(`${uuid} and ${other} held ${queue} at the same time`);
      this.#holders.set(queue, uuid);
      await sleep(randomInt(20));
      this.#holders.delete(queue);
      this.held.set(queue, (this.held.get(queue) ?? 0) + 1);
      await this.#until(() => this.#ask('PUT', `/tickets/${uuid}/release`));
    }
  }

  async #create(id: string): Promise<string | undefined> {
    const body = { scope: 'test', id, expires_in: EXPIRES_IN_SECONDS };
    const answer = await this.#ask('POST', '/servers/default/tickets', body);
    if (answer?.status === 202) return answer.body.uuid;
    await sleep(200);
    return undefined;
  }

  /** False when the ticket expired before its turn. */
  async #acquire(uuid: string): Promise<boolean> {
    const waited = await this.#until(() => this.#ask('GET', `/tickets/${uuid}/wait?timeout=${WAIT_SECONDS}`));
    if (waited.status !== 204) return this.#isExpired(uuid, waited);
    const renewed = await this.#until(() => this.#ask('POST', `/tickets/${uuid}/renew`, { expires_in: 60 }));
    return renewed.status === 200 || this.#isExpired(uuid, renewed);
  }

  #isExpired(uuid: string, { status, body }: Answer): false {
    if (!/expired/.test(body.message ?? '')) this.violations.push(`${uuid}: ${status} ${JSON.stringify(body)}`);
    return false;
  }

  /** Asks any instance again while the answer says that a retry makes sense. */
  async #until(ask: () => Promise<Answer | undefined>): Promise<Answer> {
    for (;;) {
      const answer = await ask();
      if (answer !== undefined && answer.status !== 503 && answer.status !== 408) return answer;
      if (answer?.status !== 408) await sleep(200);
    }
  }

  async #ask(method: string, path: string, body?: object): Promise<Answer | undefined> {
    const { urls } = this.#plan;
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    const sent =
      body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
    try {
      const response = await fetch(`${urls[randomInt(urls.length)]}${path}`, { method, signal, ...sent });
      const text = await response.text();
      return { status: response.status, body: text === '' ? {} : JSON.parse(text) };
    } catch {
      return undefined;
    }
  }
}
