/**
 * A model of how a client should call. It asks one instance; if that one is gone, does not answer
 * or answers 503, it asks the next one, until its time is up. Tasks are created under an
 * idempotency key, so that a repeated request after a lost answer is harmless.
 */
import type { Clock } from '../../lib/platform/time/clock.ts';

export interface Answer<Body> {
  status: number;
  body: Body;
  /** The instance that answered, and the time of the request (this machine's wall clock). */
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
  /** The idempotency key. */
  key: string;
  task: string;
  params?: Record<string, unknown>;
  idempotent?: boolean;
}

/** Maximum time to wait for one instance. */
const ANSWER_WITHIN_MS = 5_000;
const PAUSE_MS = 100;
const WAIT_SECONDS = 20;

export class NoAnswerError extends Error {
  constructor(what: string, lastly: string) {
    super(`${what}: no instance answered in time; lastly: ${lastly}`);
    this.name = 'NoAnswerError';
  }
}

export interface CallerDeps {
  urls: readonly string[];
  clock: Clock;
  signal?: AbortSignal;
  /** Returns the header with the token for an instance, if it needs one. */
  authorizationFor?: (url: string) => Promise<Record<string, string>>;
}

export class Caller {
  readonly #urls: readonly string[];
  readonly #clock: Clock;
  readonly #signal: AbortSignal | undefined;
  readonly #authorizationFor: (url: string) => Promise<Record<string, string>>;
  #next = 0;

  /** After `signal` aborts, nothing is requested any more and pending requests are cancelled. */
  constructor({ urls, clock, signal, authorizationFor = async () => ({}) }: CallerDeps) {
    this.#urls = urls;
    this.#authorizationFor = authorizationFor;
    this.#clock = clock;
    this.#signal = signal;
  }

  /**
   * Creates a task and repeats the request until it has an answer: 202 and the id. Any other answer
   * is returned as it is, unless it is temporary.
   */
  createTask(
    serverUuid: string,
    { key, ...body }: TaskOrder,
    withinMs: number,
  ): Promise<Answer<{ id: string; code?: string }>> {
    const headers = { 'Idempotency-Key': key };
    return this.ask('POST', `/servers/${serverUuid}/tasks`, { body, headers, withinMs });
  }

  /** Waits for the end of the task at any instance, `waitSeconds` per request. */
  async awaitTask(id: string, withinMs: number, waitSeconds = WAIT_SECONDS): Promise<Answer<TaskBody>> {
    const deadline = this.#clock.now() + withinMs;
    for (;;) {
      const answer = await this.ask<TaskBody>('GET', `/tasks/${id}/wait?timeout=${waitSeconds}`, {
        withinMs: deadline - this.#clock.now(),
        answerWithinMs: waitSeconds * 1000 + ANSWER_WITHIN_MS,
      });
      if (answer.status !== 200 || answer.body.status !== 'active' || this.#clock.now() > deadline) return answer;
    }
  }

  cancelTask(id: string, withinMs: number): Promise<Answer<TaskBody>> {
    return this.ask('POST', `/tasks/${id}/cancel`, { withinMs });
  }

  /** Asks until an instance has answered something else than 503. */
  async ask<Body>(
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
          headers: {
            'content-type': 'application/json',
            ...(await this.#authorizationFor(url)),
            ...request.headers,
          },
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
