/**
 * Answers of agents that wait for the database. Of each job and server the last one counts. A
 * server takes part in one job at a time, so one of which many answers wait gets no more room: its
 * agent cannot keep out the answers of others, whatever it sends. Messages have a limit of their
 * own: an answer for whose message there is no room is kept without it.
 */
import { BatchQueue, type BatchQueueDeps } from '../../../platform/postgres/batches/batch-queue.ts';

interface Answer {
  readonly jobId: string;
  readonly serverUuid: string;
  readonly message?: string | undefined;
}

const MAX_ANSWERS = 500;
/** Answers of many agents arrive within a few milliseconds. */
export const GATHER_MS = 20;
/** An agent is asked by each job that votes, and answers `busy` to all but one. */
export const MAX_ANSWERS_PER_SERVER = 64;
/** Limits the answers that wait while the database is down. */
export const MAX_WAITING = 50_000;
/** Limits the messages of the answers that wait, in characters. */
export const MAX_WAITING_CHARS = 4 * 1024 * 1024;

export class AnswerQueue<One extends Answer> {
  readonly #queue: BatchQueue<One>;
  /** Answers that are not done yet, by server. */
  readonly #counts = new Map<string, number>();
  /** Total length of the messages of these answers. */
  #chars = 0;

  constructor({ work, ...deps }: Pick<BatchQueueDeps<One>, 'clock' | 'log' | 'database' | 'what' | 'work'>) {
    this.#queue = new BatchQueue<One>({
      ...deps,
      keyOf,
      join: (earlier, later) => {
        this.#release(earlier);
        return later;
      },
      maxBatch: MAX_ANSWERS,
      minIntervalMs: GATHER_MS,
      work: async (answers, database) => {
        const locked = new Set(await work(answers, database));
        for (const answer of answers) if (!locked.has(answer)) this.#release(answer);
        return locked;
      },
      // The slow poll asks again whoever has not answered.
      onRefused: (answer, error) => {
        this.#release(answer);
        deps.log.error({ err: error, what: deps.what, key: keyOf(answer) }, 'push job: the database refuses an answer');
        return undefined;
      },
    });
  }

  /** Returns false if there is no room: the answer is dropped. */
  add(answer: One): boolean {
    const count = this.#counts.get(answer.serverUuid) ?? 0;
    const isFull = count >= MAX_ANSWERS_PER_SERVER || this.#queue.size >= MAX_WAITING;
    if (isFull && this.#queue.get(keyOf(answer)) === undefined) return false;
    const { message = '' } = answer;
    const hasRoomForMessage = this.#chars + message.length <= MAX_WAITING_CHARS;
    if (hasRoomForMessage) this.#chars += message.length;
    this.#counts.set(answer.serverUuid, count + 1);
    this.#queue.add(hasRoomForMessage ? answer : { ...answer, message: undefined }, GATHER_MS);
    return true;
  }

  finish(): Promise<One[]> {
    return this.#queue.finish();
  }

  #release({ serverUuid, message = '' }: One): void {
    this.#chars -= message.length;
    const left = (this.#counts.get(serverUuid) ?? 0) - 1;
    if (left > 0) this.#counts.set(serverUuid, left);
    else this.#counts.delete(serverUuid);
  }
}

const keyOf = ({ jobId, serverUuid }: Answer): string => `${jobId} ${serverUuid}`;
