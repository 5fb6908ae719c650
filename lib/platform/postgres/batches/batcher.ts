/**
 * Collects many callers' questions into few statements. The first question after a quiet period is
 * asked immediately. Questions that arrive within a gap of a statement, or while all lanes are
 * taken, go with the next one. So a quiet instance loses no time, and one that receives thousands
 * of agents asks fifty times a second instead of once for each. By the failure rule of
 * `batch-queue.ts`, no caller fails because of another's question. Because callers wait, a lost
 * connection is reported to all of them immediately, and a locked row after a short time.
 */

import type { Logger } from '../../log.ts';
import type { Clock } from '../../time/clock.ts';
import type { Queryable } from '../database.ts';
import { BatchQueue } from './batch-queue.ts';

/** Returned instead of an answer: the row is locked, ask again. */
export const LOCKED = Symbol('locked');

interface BatcherDeps<Question, Answer> {
  clock: Clock;
  log: Logger;
  database: Queryable;
  /** What the questions are about, for the log. */
  what: string;
  keyOf: (question: Question) => string;
  /**
   * Answers by key; a missing key is answered with undefined. May be asked the same question again.
   */
  ask: (questions: readonly Question[], database: Queryable) => Promise<ReadonlyMap<string, Answer | typeof LOCKED>>;
  /** Per statement: bounds its locks and its time. */
  maxBatch: number;
  /** Concurrent statements; default 2. */
  concurrency?: number;
  /**
   * How long a statement waits for a locked row before its batch is divided. Default: the
   * database's setting.
   */
  lockTimeoutMs?: number;
  /**
   * Minimum time between the starts of two statements; default 20. With 0, a question is asked at
   * once if a lane is free.
   */
  minIntervalMs?: number;
}

/** Short for a waiting caller; under load, time for many agents to arrive. */
const GAP_MS = 20;
/** A row is seldom locked for longer, and a caller can ask again. */
const PATIENCE_MS = 1_000;

interface Waiting<Question, Answer> {
  question: Question;
  resolve(answer: Answer | undefined): void;
  reject(error: unknown): void;
}

export class Batcher<Question, Answer> {
  readonly #queue: BatchQueue<Waiting<Question, Answer>>;

  constructor({ keyOf, ask, concurrency = 2, minIntervalMs = GAP_MS, ...deps }: BatcherDeps<Question, Answer>) {
    this.#queue = new BatchQueue<Waiting<Question, Answer>>({
      ...deps,
      keyOf: ({ question }) => keyOf(question),
      concurrency,
      minIntervalMs,
      work: async (batch, database) => {
        const answers = await ask(
          batch.map(({ question }) => question),
          database,
        );
        return batch.filter(({ question, resolve }) => {
          const answer = answers.get(keyOf(question));
          if (answer !== LOCKED) resolve(answer);
          return answer === LOCKED;
        });
      },
      onLost: (batch, error) => {
        for (const { reject } of batch) reject(error);
        return true;
      },
      onBusy: ({ reject }, error, agedMs) => {
        if (agedMs >= PATIENCE_MS) reject(error);
        return agedMs >= PATIENCE_MS;
      },
      onRefused: ({ reject }, error) => {
        reject(error);
        return undefined;
      },
    });
  }

  /** @throws what the statement throws for this question */
  ask(question: Question): Promise<Answer | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer | undefined>();
    this.#queue.add({ question, resolve, reject });
    return promise;
  }
}
