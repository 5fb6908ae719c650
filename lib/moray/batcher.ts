/**
 * Many callers' questions in few statements: the first after a quiet moment is asked at once, what comes within a gap of a
 * statement, or while all lanes are taken, goes with the next one. A quiet instance loses nothing by it; one that thousands
 * of agents come to asks fifty times a second instead of once for each.
 * A key stands in a batch once; who asks for it again goes with a later one, in order. Called by stores' drivers.
 *
 *     asked ──▶ waiting ──lane free, gap over──▶ in a statement ──▶ answered
 *                                                      └──failed──▶ alone ──▶ answered, or failed
 *
 * A batch that fails of itself (one row locked for too long, one value refused) is asked again one by one, so that nobody
 * fails by another's fault; one that fails because the connection is lost fails for all. Not bounded: its callers are.
 */
import type { Clock, Timer } from '../ports/clock.ts';
import { isConnectionLost } from './unavailable.ts';

export interface BatcherOptions<Question, Answer> {
  clock: Clock;
  keyOf: (question: Question) => string;
  /** Answers by key; a key that is missing is answered with undefined. May be asked the same again. */
  ask: (questions: readonly Question[]) => Promise<ReadonlyMap<string, Answer>>;
  /** Of one statement: bounds its locks and its time. */
  maxBatch: number;
  /** Statements at once; default 2. */
  lanes?: number;
  /** From one statement's start to the next one's at least; default 20. With 0, whoever finds a lane free is asked at once. */
  gapMs?: number;
}

/** Little for whoever waits, and many agents' worth under load. */
const GAP_MS = 20;

interface Waiting<Question, Answer> {
  question: Question;
  resolve(answer: Answer | undefined): void;
  reject(error: unknown): void;
}

export class Batcher<Question, Answer> {
  readonly #options: BatcherOptions<Question, Answer>;
  readonly #lanes: number;
  readonly #gapMs: number;
  #waiting: Waiting<Question, Answer>[] = [];
  #inFlight = 0;
  #startedAt = Number.NEGATIVE_INFINITY;
  #gap: Timer | undefined;

  constructor(options: BatcherOptions<Question, Answer>) {
    this.#options = options;
    this.#lanes = options.lanes ?? 2;
    this.#gapMs = options.gapMs ?? GAP_MS;
  }

  /** @throws what the statement throws for this question */
  ask(question: Question): Promise<Answer | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer | undefined>();
    this.#waiting.push({ question, resolve, reject });
    this.#next();
    return promise;
  }

  #next(): void {
    if (this.#inFlight >= this.#lanes || this.#waiting.length === 0 || this.#gap !== undefined) return;
    const { clock } = this.#options;
    const restMs = this.#startedAt + this.#gapMs - clock.now();
    if (restMs > 0) {
      this.#gap = clock.after(restMs, () => {
        this.#gap = undefined;
        this.#next();
      });
      return;
    }
    this.#startedAt = clock.now();
    this.#inFlight += 1;
    void this.#answer(this.#take()).then(() => {
      this.#inFlight -= 1;
      this.#next();
    });
  }

  #take(): Waiting<Question, Answer>[] {
    const { keyOf, maxBatch } = this.#options;
    const batch = new Map<string, Waiting<Question, Answer>>();
    const later: Waiting<Question, Answer>[] = [];
    for (const one of this.#waiting) {
      const key = keyOf(one.question);
      if (batch.size < maxBatch && !batch.has(key)) batch.set(key, one);
      else later.push(one);
    }
    this.#waiting = later;
    return [...batch.values()];
  }

  /** Never rejects: each question has its own end. */
  async #answer(batch: readonly Waiting<Question, Answer>[]): Promise<void> {
    const { keyOf, ask } = this.#options;
    try {
      const answers = await ask(batch.map(({ question }) => question));
      for (const { question, resolve } of batch) resolve(answers.get(keyOf(question)));
    } catch (error) {
      if (batch.length === 1 || isConnectionLost(error)) for (const { reject } of batch) reject(error);
      else await Promise.all(batch.map((one) => this.#answer([one])));
    }
  }
}
