/**
 * Background work of the waitlist, on every instance: expires due tickets in rounds of 500 ms,
 * however many there are, and repairs queues that have no active ticket. Such queues must not
 * exist, so each is counted as a defect. Created by `Waitlist`, which calls `repair` in its slow
 * poll and notifies the waits of the tickets that moved.
 */
import type { Bus } from '../../platform/bus/bus.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { SlowPoll } from '../../platform/waits/slow-poll.ts';
import { expireTickets, type MovedTicket, repairQueues } from './ticket-store.ts';

interface DirectorDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  log: Logger;
  announce: (moved: readonly MovedTicket[]) => void;
}

const EXPIRY_PERIOD_MS = 500;
/** Each ticket in a batch keeps its queue locked until the statement ends. */
const EXPIRY_BATCH = 200;
const REPAIR_BATCH = 200;

export class Director {
  readonly #deps: DirectorDeps;
  readonly #rounds: SlowPoll;
  #isStopped = false;
  #expired = 0;
  #defects = 0;

  constructor(deps: DirectorDeps) {
    this.#deps = deps;
    const config = { slowPollMs: EXPIRY_PERIOD_MS, slowPollNoBusMs: EXPIRY_PERIOD_MS };
    this.#rounds = new SlowPoll({ ...deps, config, what: 'expired tickets', work: () => this.#expire() });
  }

  /** Tickets that this instance found expired. */
  get expired(): number {
    return this.#expired;
  }

  /** Queues that this instance found with no active ticket. */
  get defects(): number {
    return this.#defects;
  }

  start(): void {
    this.#rounds.start();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#rounds.stop();
  }

  async repair(): Promise<void> {
    const { database, log, announce } = this.#deps;
    const { queues, moved } = await repairQueues(database, REPAIR_BATCH);
    if (queues.length === 0) return;
    this.#defects += queues.length;
    log.error({ queues: queues.slice(0, 10), count: queues.length }, 'waitlist: queues had no active ticket');
    announce(moved);
  }

  async #expire(): Promise<void> {
    const { database, log, announce } = this.#deps;
    for (let isMore = true; isMore && !this.#isStopped; ) {
      const moved = await expireTickets(database, EXPIRY_BATCH);
      const expired = moved.filter(({ status }) => status === 'expired');
      this.#expired += expired.length;
      if (expired.length > 0) {
        log.info(
          { tickets: expired.slice(0, 10).map(({ uuid }) => uuid), count: expired.length },
          'waitlist: tickets expired',
        );
      }
      announce(moved);
      isMore = moved.length >= EXPIRY_BATCH;
    }
  }
}
