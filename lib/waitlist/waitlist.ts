/**
 * The waitlist as the rest of the instance sees it: REST creates, reads, waits, releases, renews and deletes tickets. Any
 * instance answers for any ticket (law 2). Needs `waitlistMigrations`.
 *
 * Each operation is one statement; what it moved is told to those who wait, after the commit and by ids alone (law 1).
 */
import type { Bus } from '../bus/bus.ts';
import { TICKETS_TOPIC } from '../bus/topics.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';
import type { Database } from '../moray/database.ts';
import { type Clock, settlesWithin } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { publishChanges } from '../waits/changes.ts';
import { SlowPoll } from '../waits/slow-poll.ts';
import { type UntilOptions, Watches } from '../waits/watches.ts';
import { Director } from './director.ts';
import {
  type Complaint,
  complaintOf,
  type Expiry,
  type ExpiryRequest,
  isEnded,
  lifeStage,
  outcomeOf,
  parseExpiry,
  type Ticket,
  type TicketRequest,
  type TicketStatus,
  type WaitOutcome,
} from './ticket.ts';
import { InvalidTicketError, TicketEndedError, TicketNotFoundError, TooManyTicketsError } from './ticket-errors.ts';
import {
  createTicket,
  deleteEnded,
  deleteOldTickets,
  deleteQueues,
  deleteTicket,
  listOpenTickets,
  listQueues,
  listTickets,
  type MovedTicket,
  type OpenTicketFilter,
  type QueueRow,
  readNow,
  readStandings,
  readTicket,
  releaseTicket,
  renewTicket,
  type TicketChange,
  type TicketRow,
} from './ticket-store.ts';

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

/** Without a timeout a wait goes on for ever. */
export type WaitOptions = UntilOptions;

export interface WaitResult {
  outcome: WaitOutcome;
  /** It was so already when the wait began. */
  atOnce: boolean;
}

export interface CreatedTicket {
  uuid: string;
  /** Its queue in order: the active ticket, the first 1,000 of those that wait, and the new one in any case. */
  queue: Ticket[];
}

export interface Page {
  limit: number;
  offset: number;
}

/** A queue that somebody holds, as REST serves it. */
export interface Queue {
  server_uuid: string;
  scope: string;
  id: string;
  /** Tickets that wait. */
  depth: number;
  /** The active ticket; null where there is none for a moment, which the slow poll mends. */
  holder: { uuid: string; action?: string; reqid?: string; expires_at: string; active_ms: number } | null;
  /** How long the first of those that wait has done so. */
  oldest_waiting_ms: number | null;
  /** Since when it has not been empty. */
  created_at: string;
  /** When a ticket last joined. */
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

const MAX_WAITING = 10_000;
const MAX_LISTED = 1_000;
/** A queue may hold 10,001 tickets; more than some of those at once would take longer than a statement may. */
const DELETE_QUEUES = 5;
const DELETE_TICKETS = 500;
/** Statements that hang then are left to end with their connections. */
const STOPS_WITHIN_MS = 2_000;

export class Waitlist {
  readonly #deps: WaitlistDeps;
  readonly #watches: Watches<TicketStatus>;
  readonly #director: Director;
  readonly #slowPoll: SlowPoll;
  #stopping: Promise<void> | undefined;

  constructor(deps: WaitlistDeps) {
    this.#deps = deps;
    const { database, maxWaiters } = deps;
    this.#watches = new Watches<TicketStatus>({
      ...deps,
      maxWatches: maxWaiters,
      what: 'ticket',
      topic: TICKETS_TOPIC,
      read: (uuids) => readStandings(database, uuids),
      isBefore: (next, last) => lifeStage(next) < lifeStage(last),
    });
    this.#director = new Director({ ...deps, announce: (moved) => this.#announce(moved) });
    this.#slowPoll = new SlowPoll({ ...deps, what: 'the waitlist', work: () => this.#poll() });
  }

  async start(): Promise<void> {
    this.#director.start();
    this.#slowPoll.start();
  }

  /** Ends the waits. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Accepts a ticket, durably; active at once if nobody is before it. An expiry that is past is accepted.
   * @throws InvalidTicketError, TooManyTicketsError, DatabaseUnavailableError
   */
  async create(request: TicketRequest): Promise<CreatedTicket> {
    const complaint = complaintOf(request);
    if (complaint !== undefined) throw new InvalidTicketError(complaint);
    const { serverUuid, scope, id, action, extra = {}, reqId } = request;
    const uuid = this.#deps.random.uuid();
    const ticket = { uuid, serverUuid, scope, id, action, extra, reqId, expiry: validExpiry(request.expiry) };
    const rows = await createTicket(this.#deps.database, ticket, { maxWaiting: MAX_WAITING, maxListed: MAX_LISTED });
    if (rows.length === 0) throw new TooManyTicketsError(MAX_WAITING);
    return { uuid, queue: rows.map(toTicket) };
  }

  /** @throws TicketNotFoundError, DatabaseUnavailableError */
  async get(uuid: string): Promise<Ticket> {
    const row = await readTicket(this.#deps.database, uuid);
    if (row === undefined) throw new TicketNotFoundError(uuid);
    return toTicket(row);
  }

  /** The server's tickets of every status, in the order of their creation. */
  async list(serverUuid: string, page: Page): Promise<Ticket[]> {
    return (await listTickets(this.#deps.database, serverUuid, page)).map(toTicket);
  }

  /** Those of them that are active or queued. */
  async listOpen(serverUuid: string, filter: Page & OpenTicketFilter): Promise<Ticket[]> {
    return (await listOpenTickets(this.#deps.database, serverUuid, filter)).map(toTicket);
  }

  /** The queues that somebody holds, by server, scope and id. */
  async queues(page: Page): Promise<Queue[]> {
    return (await listQueues(this.#deps.database, page)).map(toQueue);
  }

  /**
   * Until the ticket is active, or will not be any more. While the database is away the wait goes on.
   * @throws TicketNotFoundError when it was not there to begin with; TooManyWaitersError, WaitStoppedError,
   * DatabaseUnavailableError when it could not be read in all the time, the signal's reason
   */
  async wait(uuid: string, options: WaitOptions = {}): Promise<WaitResult> {
    const watch = this.#watches.open(uuid, false);
    let isKnown = false;
    try {
      const seen = await watch.until((standing) => {
        const isOver = outcomeOf(standing) !== undefined;
        isKnown ||= !isOver;
        return isOver;
      }, options);
      // The time was up: what no message told of, or could not be read until now, is seen now.
      const standing = seen && outcomeOf(seen.position) ? seen.position : await this.#standing(uuid);
      if (standing === undefined && !isKnown) throw new TicketNotFoundError(uuid);
      return { outcome: outcomeOf(standing) ?? 'timeout', atOnce: !isKnown };
    } finally {
      watch.close();
    }
  }

  /**
   * Finishes the ticket, whether active or queued; one that has ended stays as it is.
   * @throws TicketNotFoundError, DatabaseUnavailableError
   */
  async release(uuid: string): Promise<void> {
    this.#changed(uuid, await releaseTicket(this.#deps.database, uuid));
  }

  /** @throws InvalidTicketError, TicketNotFoundError, TicketEndedError, DatabaseUnavailableError */
  async renew(uuid: string, expiry: ExpiryRequest): Promise<Ticket> {
    const status = this.#changed(uuid, await renewTicket(this.#deps.database, uuid, validExpiry(expiry)));
    if (isEnded(status)) throw new TicketEndedError(uuid, status);
    return this.get(uuid);
  }

  /** @throws TicketNotFoundError, DatabaseUnavailableError */
  async delete(uuid: string): Promise<void> {
    const moved = await deleteTicket(this.#deps.database, uuid);
    if (moved.length === 0) throw new TicketNotFoundError(uuid);
    this.#announce(moved);
  }

  /**
   * All tickets of the server, of every status, that were there when it was asked; queue by queue, so that none of them
   * becomes active meanwhile. @throws DatabaseUnavailableError: some may have gone
   */
  async deleteAll(serverUuid: string): Promise<void> {
    const { database } = this.#deps;
    const before = await readNow(database);
    for (let isMore = true; isMore; ) {
      const { queues, moved } = await deleteQueues(database, serverUuid, { before, maxQueues: DELETE_QUEUES });
      this.#announce(moved);
      isMore = queues > 0;
    }
    const ended = { before, maxTickets: DELETE_TICKETS };
    while ((await deleteEnded(database, serverUuid, ended)) > 0);
  }

  /** Deletes one batch of the tickets that ended more than `days` ago; returns how many went. Call it until none do. */
  deleteOlderThan(days: number): Promise<number> {
    return deleteOldTickets(this.#deps.database, days, DELETE_TICKETS);
  }

  stats(): WaitlistStats {
    return { waits: this.#watches.count, expired: this.#director.expired, defects: this.#director.defects };
  }

  #changed(uuid: string, change: TicketChange | undefined): TicketStatus {
    if (change === undefined) throw new TicketNotFoundError(uuid);
    this.#announce(change.moved);
    return change.status;
  }

  #announce(moved: readonly MovedTicket[]): void {
    const uuids = moved.map(({ uuid }) => uuid);
    for (const uuid of uuids) this.#watches.wake(uuid, true);
    publishChanges(this.#deps.bus, TICKETS_TOPIC, uuids);
  }

  async #standing(uuid: string): Promise<TicketStatus | undefined> {
    const [found] = await readStandings(this.#deps.database, [uuid]);
    return found?.[1];
  }

  async #poll(): Promise<void> {
    this.#watches.poll();
    await this.#director.mend();
  }

  async #stop(): Promise<void> {
    const { clock, log } = this.#deps;
    const parts = Promise.all([this.#slowPoll.stop(), this.#director.stop(), this.#watches.stop()]);
    if (!(await settlesWithin(clock, STOPS_WITHIN_MS, parts)))
      log.warn('waitlist: stopped without an answer from the database');
  }
}

function validExpiry(request: ExpiryRequest): Expiry {
  const expiry: Expiry | Complaint = parseExpiry(request);
  if ('field' in expiry) throw new InvalidTicketError(expiry);
  return expiry;
}

function toTicket(row: TicketRow): Ticket {
  const { uuid, server_uuid, scope, id, action, extra, reqid, status, created_at, updated_at } = row;
  return {
    uuid,
    server_uuid,
    scope,
    id,
    ...(action === null ? {} : { action }),
    extra,
    expires_at: expiryText(row.expires_at, row.expires_text),
    created_at: created_at.toISOString(),
    updated_at: updated_at.toISOString(),
    status,
    ...(reqid === null ? {} : { reqid }),
  };
}

function toQueue(row: QueueRow): Queue {
  const { server_uuid, scope, id, waiting, oldest_waiting_ms, created_at, updated_at } = row;
  return {
    server_uuid,
    scope,
    id,
    depth: waiting,
    holder: toHolder(row),
    oldest_waiting_ms,
    created_at: created_at.toISOString(),
    updated_at: updated_at.toISOString(),
  };
}

function toHolder({ holder, action, reqid, expires_at, expires_text, active_ms }: QueueRow): Queue['holder'] {
  if (holder === null || expires_at === null) return null;
  return {
    uuid: holder,
    ...(action === null ? {} : { action }),
    ...(reqid === null ? {} : { reqid }),
    expires_at: expiryText(expires_at, expires_text),
    active_ms: active_ms ?? 0,
  };
}

const expiryText = (at: Date, given: string | null) => given ?? at.toISOString();
