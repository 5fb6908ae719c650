/**
 * The waitlist as the rest of the instance sees it: REST creates, reads, waits, releases, renews and deletes tickets. Any
 * instance answers for any ticket (law 2). Needs `waitlistMigrations`.
 */
import type { Bus } from '../bus/bus.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';
import type { Database } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import type { ExpiryRequest, Ticket, TicketRequest, WaitOutcome } from './ticket.ts';

export type WaitlistConfig = Pick<Config, 'slowPollMs' | 'slowPollNoBusMs'>;

export interface WaitlistDeps {
  database: Database;
  bus: Bus;
  clock: Clock;
  random: Random;
  log: Logger;
  config: WaitlistConfig;
  /** Waits at once. Default 10,000. */
  maxWaiters?: number;
}

export interface WaitOptions {
  /** Default: for ever. */
  timeoutMs?: number;
  /** Ends the wait with the signal's reason, for a caller that went away. */
  signal?: AbortSignal;
  /** Ends the wait as its timeout does: this instance is leaving. */
  over?: AbortSignal;
}

export interface WaitResult {
  outcome: WaitOutcome;
  /** It was so already when the wait began. */
  atOnce: boolean;
}

export interface CreatedTicket {
  uuid: string;
  /** The active and the queued tickets of its queue in order: the first 1,000, and the new one in any case. */
  queue: Ticket[];
}

export interface Page {
  limit: number;
  offset: number;
}

/** A queue that has tickets, as REST serves it. */
export interface Queue {
  server_uuid: string;
  scope: string;
  id: string;
  /** Tickets that wait. */
  depth: number;
  /** Of the active ticket. */
  holder: { uuid: string; action?: string; reqid?: string; expires_at: string; active_ms: number } | null;
  /** How long the first of those that wait has done so. */
  oldest_waiting_ms: number | null;
  created_at: string;
  updated_at: string;
}

export interface WaitlistStats {
  /** Waits in progress. */
  waits: number;
  /** Tickets this instance found expired. */
  expired: number;
  /** Queues found with waiting tickets and no active one: a defect, mended and counted. */
  defects: number;
}

export class Waitlist {
  readonly #deps: WaitlistDeps;

  constructor(deps: WaitlistDeps) {
    this.#deps = deps;
  }

  async start(): Promise<void> {}

  async stop(): Promise<void> {}

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Accepts a ticket, durably; active at once if nobody is before it. An expiry that is past is accepted.
   * @throws InvalidTicketError, TooManyTicketsError, DatabaseUnavailableError
   */
  async create(_request: TicketRequest): Promise<CreatedTicket> {
    throw this.#todo();
  }

  /** @throws TicketNotFoundError, DatabaseUnavailableError */
  async get(_uuid: string): Promise<Ticket> {
    throw this.#todo();
  }

  /** The server's tickets of every status, in the order of their creation. */
  async list(_serverUuid: string, _page: Page): Promise<Ticket[]> {
    throw this.#todo();
  }

  /** The queues that have tickets, by server, scope and id. */
  async queues(_page: Page): Promise<Queue[]> {
    throw this.#todo();
  }

  /**
   * Until the ticket is active, or will not be any more. While the database is away the wait goes on.
   * @throws TicketNotFoundError when it was not there to begin with; TooManyWaitersError, WaitStoppedError,
   * DatabaseUnavailableError when it could not be read in all the time, the signal's reason
   */
  async wait(_uuid: string, _options: WaitOptions = {}): Promise<WaitResult> {
    throw this.#todo();
  }

  /** Finishes the ticket, whether active or queued; one that has ended stays as it is. @throws TicketNotFoundError, DatabaseUnavailableError */
  async release(_uuid: string): Promise<void> {
    throw this.#todo();
  }

  /** @throws InvalidTicketError, TicketNotFoundError, TicketEndedError, DatabaseUnavailableError */
  async renew(_uuid: string, _expiry: ExpiryRequest): Promise<Ticket> {
    throw this.#todo();
  }

  /** @throws TicketNotFoundError, DatabaseUnavailableError */
  async delete(_uuid: string): Promise<void> {
    throw this.#todo();
  }

  /** All tickets of the server, of every status; returns how many went. @throws DatabaseUnavailableError */
  async deleteAll(_serverUuid: string): Promise<number> {
    throw this.#todo();
  }

  /** Deletes one batch of the tickets that ended more than `days` ago; returns how many went. Call it until none do. */
  async deleteOlderThan(_days: number): Promise<number> {
    throw this.#todo();
  }

  stats(): WaitlistStats {
    return { waits: 0, expired: 0, defects: 0 };
  }

  #todo(): Error {
    return new Error(`not there yet ${this.#deps.config.slowPollMs}`);
  }
}
