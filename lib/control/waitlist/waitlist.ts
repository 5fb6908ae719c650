/**
 * The waitlist as the rest of the instance uses it: REST creates, reads, waits for, releases,
 * renews and deletes tickets. Any instance answers for any ticket (law 2). Each operation is one
 * statement. After the commit the waits are notified of the tickets that moved, by ids alone (law
 * 1).
 */

import type { Bus } from '../../platform/bus/bus.ts';
import { isTemporary } from '../../platform/errors.ts';
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import type { Logger } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import { type Clock, settlesWithin } from '../../platform/time/clock.ts';
import { publishChanges } from '../../platform/waits/changes.ts';
import { SlowPoll } from '../../platform/waits/slow-poll.ts';
import { type UntilOptions, Watches } from '../../platform/waits/watches.ts';
import type { Issue } from '../../protocol/api/contract/contract.ts';
import { digestOf } from '../../protocol/json/canonical-json.ts';
import type { Config } from '../config.ts';
import { Director } from './director.ts';
import {
  decideWaitOutcome,
  type Expiry,
  type ExpiryRequest,
  findTicketIssue,
  isEnded,
  lifeStage,
  parseExpiry,
  type TicketRequest,
  type TicketStatus,
  type WaitOutcome,
} from './ticket.ts';
import { TicketChanges } from './ticket-changes.ts';
import {
  InvalidTicketError,
  TicketEndedError,
  TicketKeyConflictError,
  TicketNotFoundError,
  TooManyTicketsError,
} from './ticket-errors.ts';
import { createTicketOnce } from './ticket-keys.ts';
import {
  listOpenTickets,
  listQueues,
  listTickets,
  type OpenTicketFilter,
  type QueueRow,
  readQueueTimes,
} from './ticket-list-store.ts';
import {
  addTicket,
  deleteEnded,
  deleteOldTickets,
  deleteQueues,
  deleteTicket,
  type MovedTicket,
  type NewTicket,
  readLastQueue,
  readQueueUpTo,
  readTicket,
  readTicketStatuses,
  releaseTicket,
  renewTicket,
  type TicketChange,
  type TicketRefusal,
  type TicketRow,
} from './ticket-store.ts';

export type WaitlistConfig = Pick<Config, 'slowPollMs' | 'slowPollNoBusMs'>;

interface WaitlistDeps {
  database: Database;
  bus: Bus;
  clock: Clock;
  random: Random;
  log: Logger;
  config: WaitlistConfig;
  /** Maximum number of waits at the same time. Default 10,000. */
  maxWaiters?: number;
}

export interface WaitResult {
  outcome: WaitOutcome;
  /** The outcome already held when the wait began. */
  atOnce: boolean;
}

/** A ticket that was created, and its queue as it was read after the commit. */
export interface AcceptedTicket {
  uuid: string;
  queue: TicketRow[];
}

interface Page {
  limit: number;
  offset: number;
}

interface WaitlistStats {
  /** Number of waits in progress. */
  waits: number;
  /** Tickets this instance found expired. */
  expired: number;
  /**
   * Queues that this instance found with waiting tickets but no active one. Each is a defect; it is
   * repaired and counted.
   */
  defects: number;
  /** Tickets that were not accepted because their queue or their server held too many. */
  refusedCreates: number;
}

/**
 * Tickets that became active, ended or were deleted: `{ids}`. Every instance that has ever had a
 * wait for a ticket is subscribed.
 */
export const TICKETS_TOPIC = 'tickets';
/** `maxWaiting`: in one queue. `maxOpen`: in all queues of a server. */
const BOUNDS = { maxWaiting: 10_000, maxOpen: 20_000 };
const MAX_LISTED = 1_000;
/** The moves whose times the metrics read next. */
const MAX_RECENT = 1_000;
/**
 * A queue may hold 10,001 tickets. Deleting many such queues together would exceed the time limit
 * of a statement.
 */
const DELETE_QUEUES = 5;
const DELETE_TICKETS = 500;
/** Statements that have not ended by then end with their connections. */
const STOPS_WITHIN_MS = 2_000;

export class Waitlist {
  readonly #deps: WaitlistDeps;
  readonly #changes: TicketChanges;
  readonly #watches: Watches<TicketStatus>;
  readonly #recentMoves = new BoundedMap<string, true>(MAX_RECENT);
  readonly #director: Director;
  readonly #slowPoll: SlowPoll;
  #refusedCreates = 0;
  #stopping: Promise<void> | undefined;

  constructor(deps: WaitlistDeps) {
    this.#deps = deps;
    const { maxWaiters } = deps;
    this.#changes = new TicketChanges(deps);
    this.#watches = new Watches<TicketStatus>({
      ...deps,
      maxWatches: maxWaiters,
      what: 'ticket',
      topic: TICKETS_TOPIC,
      read: readTicketStatuses,
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
   * Accepts a ticket durably. It is active immediately if its queue was empty. An expiry in the
   * past is accepted. A request that repeats an idempotency key receives that key's ticket as it is
   * now. `queue` is read after the commit: in order the active ticket, the first 1,000 waiting
   * ones, and the new one. Only the new one if it does not wait; empty if it was deleted meanwhile.
   * @throws InvalidTicketError, TooManyTicketsError, TicketKeyConflictError,
   * DatabaseUnavailableError
   */
  async create(request: TicketRequest): Promise<AcceptedTicket> {
    const issue = findTicketIssue(request);
    if (issue !== undefined) throw new InvalidTicketError(issue);
    const { serverUuid, scope, id, action, extra = {}, reqId, actor, record } = request;
    const uuid = request.uuid ?? this.#deps.random.uuid();
    const expiry = validExpiry(request.expiry);
    const ticket = { uuid, serverUuid, scope, id, action, extra, reqId, actor, expiry, record };
    if (request.idempotencyKey !== undefined) return this.#createOnce(ticket, request, request.idempotencyKey);
    const { database } = this.#deps;
    const outcome = await this.#changes.ofQueue(ticket, (wait) => addTicket(database, ticket, { ...BOUNDS, ...wait }));
    if (outcome !== 'added') throw this.#refuse(serverUuid, outcome);
    return { uuid, queue: await this.#queueUpTo(uuid) };
  }

  /** The ticket exists: its caller must get the uuid, whatever happens to the rest of the queue. */
  async #queueUpTo(uuid: string): Promise<TicketRow[]> {
    try {
      return await readQueueUpTo(this.#deps.database, uuid, MAX_LISTED);
    } catch (error) {
      if (isTemporary(error)) return [];
      throw error;
    }
  }

  async #createOnce(ticket: NewTicket, { expiry }: TicketRequest, key: string): Promise<AcceptedTicket> {
    const { database } = this.#deps;
    const { scope, id, action, extra } = ticket;
    const requestHash = digestOf({ scope, id, action: action ?? null, extra, expiry });
    const made = await this.#changes.ofQueue(ticket, (wait) =>
      createTicketOnce(database, ticket, { key, requestHash, ...BOUNDS, ...wait }),
    );
    if (typeof made === 'string') throw this.#refuse(ticket.serverUuid, made);
    if (made.requestHash !== requestHash) throw new TicketKeyConflictError(made.uuid, key);
    return { uuid: made.uuid, queue: await this.#queueUpTo(made.uuid) };
  }

  #refuse(serverUuid: string, refusal: TicketRefusal): TooManyTicketsError {
    this.#refusedCreates += 1;
    return refusal === 'queue-full'
      ? new TooManyTicketsError('This queue', BOUNDS.maxWaiting)
      : new TooManyTicketsError(`Server ${serverUuid}, in all its queues,`, BOUNDS.maxOpen);
  }

  /** @throws TicketNotFoundError, DatabaseUnavailableError */
  async get(uuid: string): Promise<TicketRow> {
    const row = await readTicket(this.#deps.database, uuid);
    if (row === undefined) throw new TicketNotFoundError(uuid);
    return row;
  }

  /** The statuses of those of these tickets that exist. */
  async statuses(uuids: readonly string[]): Promise<Map<string, TicketStatus>> {
    return new Map(uuids.length === 0 ? [] : await readTicketStatuses(this.#deps.database, uuids));
  }

  /** Lists the server's tickets of every status in order of creation. */
  list(serverUuid: string, page: Page): Promise<TicketRow[]> {
    return listTickets(this.#deps.database, serverUuid, page);
  }

  /** Lists the server's active and queued tickets. */
  listOpen(serverUuid: string, filter: Page & OpenTicketFilter): Promise<TicketRow[]> {
    return listOpenTickets(this.#deps.database, serverUuid, filter);
  }

  /** Lists the queues with a holder, sorted by server, scope and id. */
  queues(page: Page): Promise<QueueRow[]> {
    return listQueues(this.#deps.database, page);
  }

  /**
   * Waits until the ticket is active or can no longer become active. The wait continues while the
   * database is unreachable.
   * @throws TicketNotFoundError when the ticket did not exist at the start; TooManyWaitersError,
   * WaitStoppedError, DatabaseUnavailableError when no read succeeded in all that time, the
   * signal's reason
   */
  async wait(uuid: string, options: UntilOptions = {}): Promise<WaitResult> {
    const watch = this.#watches.open(uuid, false);
    let isKnown = false;
    try {
      const seen = await watch.until((ticketStatus) => {
        const isOver = decideWaitOutcome(ticketStatus) !== undefined;
        isKnown ||= !isOver;
        return isOver;
      }, options);
      // The time is up. A last read shows a change that no message announced or that could not be
      // read before.
      const ticketStatus = seen && decideWaitOutcome(seen.position) ? seen.position : await this.#readStatus(uuid);
      if (ticketStatus === undefined && !isKnown) throw new TicketNotFoundError(uuid, { isAwaited: true });
      return { outcome: decideWaitOutcome(ticketStatus) ?? 'timeout', atOnce: !isKnown };
    } finally {
      watch.close();
    }
  }

  /**
   * Finishes an active or queued ticket; an ended ticket does not change.
   * @throws TicketNotFoundError, DatabaseUnavailableError
   */
  async release(uuid: string): Promise<void> {
    const { database } = this.#deps;
    this.#changed(uuid, await this.#changes.ofTicket(uuid, (wait) => releaseTicket(database, uuid, wait)));
  }

  /** @throws InvalidTicketError, TicketNotFoundError, TicketEndedError, DatabaseUnavailableError */
  async renew(uuid: string, expiry: ExpiryRequest): Promise<TicketRow> {
    const { database } = this.#deps;
    const valid = validExpiry(expiry);
    const change = await this.#changes.ofTicket(uuid, (wait) => renewTicket(database, uuid, valid, wait));
    const status = this.#changed(uuid, change);
    if (isEnded(status)) throw new TicketEndedError(uuid, status);
    return this.get(uuid);
  }

  /** @throws TicketNotFoundError, DatabaseUnavailableError */
  async delete(uuid: string): Promise<void> {
    const { database } = this.#deps;
    const moved = await this.#changes.ofTicket(uuid, (wait) => deleteTicket(database, uuid, wait));
    if (moved.length === 0) throw new TicketNotFoundError(uuid);
    this.#announce(moved);
  }

  /**
   * Deletes all of the server's tickets, of every status, that existed when the call began. It
   * deletes queue by queue, so that none of them becomes active meanwhile.
   * @throws DatabaseUnavailableError when some tickets may already be deleted
   */
  async deleteAll(serverUuid: string): Promise<void> {
    const { database } = this.#deps;
    const last = await readLastQueue(database);
    for (let isMore = true; isMore; ) {
      const some = { last, maxQueues: DELETE_QUEUES };
      const { queues, moved } = await this.#changes.ofServer(serverUuid, (wait) =>
        deleteQueues(database, serverUuid, { ...some, ...wait }),
      );
      this.#announce(moved);
      isMore = queues > 0;
    }
    const ended = { last, maxTickets: DELETE_TICKETS };
    while ((await deleteEnded(database, serverUuid, ended)) > 0);
  }

  /**
   * Deletes one batch of the tickets that ended more than `days` ago. Returns their number; the
   * caller repeats it until that is zero.
   */
  deleteOlderThan(days: number): Promise<number> {
    return deleteOldTickets(this.#deps.database, days, DELETE_TICKETS);
  }

  /**
   * Returns, for the tickets that this instance has moved since the last call, how many seconds
   * each that became active had queued.
   */
  async recentWaits(): Promise<number[]> {
    const uuids = [...this.#recentMoves.keys()];
    this.#recentMoves.clear();
    return uuids.length === 0 ? [] : readQueueTimes(this.#deps.database, uuids);
  }

  stats(): WaitlistStats {
    const { expired, defects } = this.#director;
    return { waits: this.#watches.count, expired, defects, refusedCreates: this.#refusedCreates };
  }

  #changed(uuid: string, change: TicketChange | undefined): TicketStatus {
    if (change === undefined) throw new TicketNotFoundError(uuid);
    this.#announce(change.moved);
    return change.status;
  }

  #announce(moved: readonly MovedTicket[]): void {
    const uuids = moved.map(({ uuid }) => uuid);
    for (const uuid of uuids) {
      this.#recentMoves.set(uuid, true);
      this.#watches.wake(uuid, true);
    }
    publishChanges(this.#deps.bus, TICKETS_TOPIC, uuids);
  }

  async #readStatus(uuid: string): Promise<TicketStatus | undefined> {
    const [found] = await readTicketStatuses(this.#deps.database, [uuid]);
    return found?.[1];
  }

  async #poll(): Promise<void> {
    this.#watches.poll();
    await this.#director.repair();
  }

  async #stop(): Promise<void> {
    const { clock, log } = this.#deps;
    const parts = Promise.all([this.#slowPoll.stop(), this.#director.stop(), this.#watches.stop()]);
    if (!(await settlesWithin(clock, STOPS_WITHIN_MS, parts)))
      log.warn('waitlist: stopped without an answer from the database');
  }
}

function validExpiry(request: ExpiryRequest): Expiry {
  const expiry: Expiry | Issue = parseExpiry(request);
  if ('field' in expiry) throw new InvalidTicketError(expiry);
  return expiry;
}
