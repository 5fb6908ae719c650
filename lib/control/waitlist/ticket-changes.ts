/**
 * Lets changes of tickets run so that a queue whose row is locked holds up no other queue (law 9).
 * Each change locks the row of its queue and holds a connection of the pool while it waits for it.
 *
 *     quick ──row is free──▶ done
 *       └──locked for 20 ms──▶ line of its queue ──its turn──▶ patient ──row is free──▶ done
 *                                                    ▲────locked for 100 ms────┘
 *
 * Three connections are for quick tries. The fourth is for the changes of locked queues: one change
 * of each locked queue at a time, and the queues take turns. While a queue has such a line, its
 * changes join it without a try.
 */
import { DatabaseBusyError } from '../../platform/errors.ts';
import { KeyedSemaphore } from '../../platform/limiting/keyed-semaphore.ts';
import { Semaphore, type WaitLimit } from '../../platform/limiting/semaphore.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { type LockWait, type QueueKey, readQueueKey } from './ticket-store.ts';

interface TicketChangesDeps {
  database: Queryable;
  clock: Clock;
}

/** A change tried once; it waits at most `wait` for each lock. */
type Change<Result> = (wait: LockWait) => Promise<Result>;

const QUICK_CONNECTIONS = 3;
const PATIENT_CONNECTIONS = 1;
/** How long a change waits for its turn and for locks in all. */
const WITHIN_MS = 2_000;
const QUICK_LOCK_MS = 20;
const PATIENT_LOCK_MS = 100;

export class TicketChanges {
  readonly #deps: TicketChangesDeps;
  readonly #quick = new Semaphore(QUICK_CONNECTIONS);
  readonly #patient = new Semaphore(PATIENT_CONNECTIONS);
  readonly #lines = new KeyedSemaphore(1);

  constructor(deps: TicketChangesDeps) {
    this.#deps = deps;
  }

  /** @throws DatabaseBusyError (`locked`) if it cannot be done in time; then nothing was changed */
  ofQueue<Result>(queue: QueueKey, change: Change<Result>): Promise<Result> {
    return this.#run(async () => textOf(queue), change);
  }

  /** Like `ofQueue`, for the queue of the ticket. */
  ofTicket<Result>(uuid: string, change: Change<Result>): Promise<Result> {
    return this.#run(async () => {
      const queue = await readQueueKey(this.#deps.database, uuid);
      return queue === undefined ? uuid : textOf(queue);
    }, change);
  }

  /** Like `ofQueue`, for many queues of the server. */
  ofServer<Result>(serverUuid: string, change: Change<Result>): Promise<Result> {
    return this.#run(async () => JSON.stringify([serverUuid]), change);
  }

  async #run<Result>(findQueue: () => Promise<string>, change: Change<Result>): Promise<Result> {
    const endsAt = this.#deps.clock.now() + WITHIN_MS;
    const outcome = await this.#quick.runWithin(this.#limit(endsAt), async () => {
      // In normal operation no queue has a line, and a change is one statement.
      if (this.#lines.size > 0) {
        const queue = await findQueue();
        if (this.#lines.has(queue)) return { later: this.#inLine(queue, change, endsAt) };
      }
      try {
        return { result: await change({ lockMs: QUICK_LOCK_MS }) };
      } catch (error) {
        if (!this.#mayTryAgain(error, endsAt)) throw error;
        // It joins the line before it makes way, so the next one sees the line.
        return { later: this.#inLine(await findQueue(), change, endsAt) };
      }
    });
    return outcome.later === undefined ? outcome.result : outcome.later;
  }

  #inLine<Result>(queue: string, change: Change<Result>, endsAt: number): Promise<Result> {
    return this.#lines.runWithin(queue, this.#limit(endsAt), async () => {
      for (;;) {
        try {
          return await this.#patient.runWithin(this.#limit(endsAt), () => change({ lockMs: PATIENT_LOCK_MS }));
        } catch (error) {
          if (!this.#mayTryAgain(error, endsAt)) throw error;
        }
      }
    });
  }

  #limit(endsAt: number): WaitLimit {
    const { clock } = this.#deps;
    return { clock, withinMs: Math.max(endsAt - clock.now(), 0), late: () => new DatabaseBusyError('locked') };
  }

  #mayTryAgain(error: unknown, endsAt: number): boolean {
    const isLocked = error instanceof DatabaseBusyError && error.condition === 'locked';
    return isLocked && this.#deps.clock.now() < endsAt;
  }
}

const textOf = ({ serverUuid, scope, id }: QueueKey): string => JSON.stringify([serverUuid, scope, id]);
