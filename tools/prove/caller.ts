/**
 * A caller as clients should be written: it asks one instance, and where that one is gone, does not answer or says 503, the
 * next one, until its time is up. Tasks are created under an idempotency key, so that asking again after a lost answer is
 * harmless.
 */
import type { Clock } from '../../lib/ports/clock.ts';

export interface Answer<Body> {
  status: number;
  body: Body;
  /** Which instance answered, and when it was asked (this machine's wall clock). */
  url: string;
  askedAt: number;
}

export interface TaskBody {
  id: string;
  status: 'active' | 'complete' | 'failure';
  attempt: number;
  history: { name: string; event: { error?: { code: string; message: string } } }[];
}

export interface TaskOrder {
  /** Its idempotency key. */
  key: string;
  task: string;
  params?: Record<string, unknown>;
  idempotent?: boolean;
}

/** An instance that takes longer is not waited for. */
const ANSWER_WITHIN_MS = 5_000;
const PAUSE_MS = 100;
const WAIT_SECONDS = 20;

export class NoAnswerError extends Error {
  constructor(what: string, lastly: string) {
    super(`${what}: no instance answered in time; lastly: ${lastly}`);
    this.name = 'NoAnswerError';
  }
}

export class Caller {
  readonly #urls: readonly string[];
  readonly #clock: Clock;
  readonly #signal: AbortSignal | undefined;
  #next = 0;

  /** Once `signal` is aborted nothing is asked any more, and what waits for an answer is given up. */
  constructor({ urls, clock, signal }: { urls: readonly string[]; clock: Clock; signal?: AbortSignal }) {
    this.#urls = urls;
    this.#clock = clock;
    this.#signal = signal;
  }

  /** Accepted for sure: 202 and the id; any other answer but a temporary one is returned as it is. */
  createTask(
    serverUuid: string,
    { key, ...body }: TaskOrder,
    withinMs: number,
  ): Promise<Answer<{ id: string; code?: string }>> {
    const headers = { 'Idempotency-Key': key };
    return this.#ask('POST', `/servers/${serverUuid}/tasks`, { body, headers, withinMs });
  }

  /** The task at its end, waited for wherever one can wait, each time so many seconds. */
  async awaitTask(id: string, withinMs: number, waitSeconds = WAIT_SECONDS): Promise<Answer<TaskBody>> {
    const deadline = this.#clock.now() + withinMs;
    for (;;) {
      const answer = await this.#ask<TaskBody>('GET', `/tasks/${id}/wait?timeout=${waitSeconds}`, {
        withinMs: deadline - this.#clock.now(),
        answerWithinMs: waitSeconds * 1000 + ANSWER_WITHIN_MS,
      });
      if (answer.status !== 200 || answer.body.status !== 'active' || this.#clock.now() > deadline) return answer;
    }
  }

  cancelTask(id: string, withinMs: number): Promise<Answer<TaskBody>> {
    return this.#ask('POST', `/tasks/${id}/cancel`, { withinMs });
  }

  async #ask<Body>(
    method: string,
    path: string,
    request: { body?: unknown; headers?: Record<string, string>; withinMs: number; answerWithinMs?: number },
  ): Promise<Answer<Body>> {
    const deadline = this.#clock.now() + request.withinMs;
    for (let lastly = 'nobody was asked'; ; await this.#clock.sleep(PAUSE_MS)) {
      if (this.#clock.now() > deadline || this.#signal?.aborted) throw new NoAnswerError(`${method} ${path}`, lastly);
      const url = this.#urls[this.#next++ % this.#urls.length] as string;
      const askedAt = this.#clock.wallTime();
      try {
        const response = await fetch(`${url}${path}`, {
          method,
          headers: { 'content-type': 'application/json', ...request.headers },
          ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
          signal: AbortSignal.any([
            AbortSignal.timeout(request.answerWithinMs ?? ANSWER_WITHIN_MS),
            ...(this.#signal === undefined ? [] : [this.#signal]),
          ]),
        });
        const text = await response.text();
        const body = (text === '' ? undefined : JSON.parse(text)) as Body;
        if (response.status !== 503) return { status: response.status, body, url, askedAt };
        lastly = `${url}: 503 ${text}`;
      } catch (error) {
        lastly = `${url}: ${(error as Error).cause ?? error}`;
      }
    }
  }
}
