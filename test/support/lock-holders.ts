/**
 * Callers who use locks as they are meant to be used, over REST and any instance, while faults happen: a ticket, a wait, a
 * renewal that says that the lock is held, a moment alone, a release. Whoever is not alone reports it.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

export interface LockPlan {
  urls: readonly string[];
  /** Ids of queues, all of `default`. */
  queues: readonly string[];
  callers: number;
}

interface Answer {
  status: number;
  body: { uuid?: string; message?: string };
}

/** Longer than any fault that must not cost a lock; an answer that got lost leaves its ticket that long. */
const EXPIRES_IN_SECONDS = 10;
const WAIT_SECONDS = 5;
const ANSWER_WITHIN_MS = 8_000;

export class LockHolders {
  readonly violations: string[] = [];
  /** Times that a lock was held, by queue. */
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

  /** Lets what was begun come to its end; returns the violations. */
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

  /** False: the ticket expired before its turn. */
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

  /** Asks again, anybody, while the answer is that it is worth trying. */
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
