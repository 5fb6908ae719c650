/**
 * A ticket of the waitlist from its creation to its end, for one holder. It creates the ticket even
 * if answers are lost, waits for it, renews it and releases it. `lost` aborts when the lock may no
 * longer be held: an instance reported it, or the ticket could not be renewed and may have expired.
 * Used by lock.ts.
 *
 *      taken ──▶ queued ──▶ active ──release()──▶ ended
 *                   └──────────┴── deleted, expired, not renewed in time ──▶ lost
 */

import type { CallLimits, CnapiClient, TicketOptions } from '../../client/client.ts';
import { ApiError, NoAnswerError } from '../../client/client-errors.ts';
import { messageOf } from '../../platform/errors.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Ticket } from '../../protocol/api/tickets.ts';
import { ElapsedTime } from './elapsed-time.ts';
import { reportQueuePosition } from './queue-position.ts';

interface HeldTicketDeps {
  client: CnapiClient;
  clock: Clock;
  /** Shows a remark to the user. */
  note(text: string): void;
}

interface LockRequest {
  serverUuid: string;
  scope: string;
  id: string;
  action: string;
  expiresMs: number;
  /** If the ticket cannot be renewed, the lock counts as lost this long before its expiry. */
  marginMs: number;
  requestId: string;
}

/** The message says how the lock was lost. */
export class LockLostError extends Error {}

const WAIT_SECONDS = 10;
const POLL_MS = 2000;
const PAUSE_MS = 500;
const MIN_TIMEOUT_MS = 300;
const MAX_TIMEOUT_MS = 3000;
/** A lock that is not released becomes free when its ticket expires. */
const RELEASE_WITHIN_MS = 5000;
/** How long to repeat the create while no instance answers and the request may have arrived. */
const ACQUIRE_WITHIN_MS = 30_000;

export class HeldTicket {
  readonly #deps: HeldTicketDeps;
  readonly #request: LockRequest;
  readonly #lost = new AbortController();
  readonly #done = new AbortController();
  readonly #passed: ElapsedTime;
  #uuid: string | undefined;
  /** The queue when the ticket was created; empty if no answer came. */
  #queue: readonly Ticket[] = [];
  #isUncertain = false;
  /** Number of idempotency keys whose ticket has ended. */
  #usedKeys = 0;
  #heldUntil = 0;
  /** An instance's report that the lock is lost; undefined if only the time ran out. */
  #lossError: LockLostError | undefined;
  #renewing: Promise<void> | undefined;

  constructor(deps: HeldTicketDeps, request: LockRequest) {
    this.#deps = deps;
    this.#request = request;
    this.#passed = new ElapsedTime(deps.clock);
  }

  /** Aborts with a LockLostError. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  get uuid(): string {
    if (this.#uuid === undefined) throw new Error('no ticket was taken');
    return this.#uuid;
  }

  /**
   * Creates the ticket and keeps it from then on.
   * @throws ApiError, NoAnswerError; the signal's reason
   */
  async take(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps;
    const start = this.#passed.now();
    for (;;) {
      const sentAt = this.#passed.now();
      // Not interrupted by the signal: the uuid of a created ticket must be known, to release it.
      const taken = await this.#tryToAcquire(start);
      if (taken !== undefined) {
        this.#uuid = taken;
        // A ticket that is found again may have been created by the first request.
        this.#heldUntil = (this.#isUncertain ? start : sentAt) + this.#request.expiresMs;
        this.#renewing = this.#keep();
      }
      signal.throwIfAborted();
      if (taken !== undefined) return;
      await clock.sleep(PAUSE_MS, signal);
    }
  }

  /**
   * Returns true when the ticket is active, false when it is not by `until` (of the clock).
   * @throws LockLostError, NoAnswerError, ApiError; the signal's reason
   */
  async untilActive(until: number, signal: AbortSignal): Promise<boolean> {
    const waitEnded = new AbortController();
    const either = AbortSignal.any([signal, this.lost, waitEnded.signal]);
    const reporting = reportQueuePosition(
      this.#deps,
      { ...this.#request, uuid: this.uuid },
      { queue: this.#queue, signal: either },
    );
    try {
      return await this.#wait(until, either);
    } finally {
      waitEnded.abort();
      await reporting;
    }
  }

  async #wait(until: number, either: AbortSignal): Promise<boolean> {
    const { client, clock } = this.#deps;
    let unanswered: unknown;
    let seconds = 0;
    // Asks at least once, even if no time is left.
    do {
      try {
        if ((await client.waitTicket(this.uuid, seconds, either)) === 'active') return true;
        unanswered = undefined;
      } catch (error) {
        either.throwIfAborted();
        if (!isPassing(error)) throw new LockLostError(`ticket ${this.uuid} has ended: ${messageOf(error)}`);
        unanswered = error;
        await clock.sleep(PAUSE_MS, either);
      }
      either.throwIfAborted();
      seconds = secondsTo(until, clock);
    } while (clock.now() < until);
    // Returning false requires an answer that the ticket is still queued.
    if (unanswered !== undefined) throw unanswered;
    return false;
  }

  /**
   * @throws LockLostError when the lock may no longer be held, because this process may have been
   * suspended
   */
  confirm(): void {
    this.#loseIfExpired();
    this.lost.throwIfAborted();
  }

  /**
   * Called after the work: checks that the lock was held until the end of the work.
   * @throws LockLostError
   */
  async confirmHeldUntilNow(): Promise<void> {
    const { client, clock } = this.#deps;
    const wasGood = !this.lost.aborted && this.#leftMs() > 0;
    const enough = new AbortController();
    const timer = clock.after(MAX_TIMEOUT_MS, () => enough.abort(new Error('no time left')));
    try {
      const { status } = await client.ticket(this.uuid, this.#limits(enough.signal));
      // An ended ticket never becomes active again, so the lock was held throughout.
      if (status === 'active') return;
      this.#lose(`ticket ${this.uuid} is ${status}`);
    } catch (error) {
      if (isOver(error)) this.#lose(error.message);
    } finally {
      timer.cancel();
    }
    if (this.#lossError !== undefined) throw this.#lossError;
    // The time without an answer passed after the work had ended.
    if (!wasGood) this.confirm();
  }

  /**
   * Resolves after a renewal that was sent after this call: before it, the state of the lock during
   * the pause is unknown.
   * @throws LockLostError
   */
  async renewAndConfirm(): Promise<void> {
    for (;;) {
      this.confirm();
      const isRenewed = await this.#within((signal) => this.#renew(signal));
      if (this.#done.signal.aborted) return;
      if (isRenewed) return this.confirm();
      await this.#deps.clock.sleep(PAUSE_MS, this.lost);
    }
  }

  /**
   * Releases the lock, or the place in the queue. Returns false when no instance answered: then the
   * lock becomes free when the ticket expires.
   */
  async release(): Promise<boolean> {
    this.#done.abort();
    await this.#renewing;
    const { client, clock } = this.#deps;
    const enough = new AbortController();
    const timer = clock.after(RELEASE_WITHIN_MS, () => enough.abort(new Error('no time left')));
    const limits = { signal: enough.signal, withinMs: RELEASE_WITHIN_MS / 3 };
    try {
      // The key gives the same ticket, even one whose commit is still in progress.
      if (this.#isUncertain) this.#uuid ??= (await client.createTicket(this.#creation(), limits)).uuid;
      if (this.#uuid !== undefined) await client.releaseTicket(this.#uuid, limits).catch(unlessGone);
      if (this.#isUncertain)
        for (const ticket of await this.#mine(limits)) await client.deleteTicket(ticket.uuid, limits).catch(unlessGone);
      return true;
    } catch {
      return false;
    } finally {
      timer.cancel();
    }
  }

  /** Returns undefined when the outcome is unknown and the caller should try again. */
  async #tryToAcquire(start: number): Promise<string | undefined> {
    try {
      // A request whose answer was lost may have created a ticket. An instance of an earlier
      // version finds it only by the request's id.
      const [earlier] = this.#isUncertain ? await this.#mine() : [];
      if (earlier !== undefined) return earlier.uuid;
      const { uuid, queue } = await this.#deps.client.createTicket(this.#creation());
      const own = queue.find((ticket) => ticket.uuid === uuid);
      if (own?.status === 'expired' || own?.status === 'finished') {
        this.#usedKeys += 1;
        return undefined;
      }
      this.#queue = queue;
      return uuid;
    } catch (error) {
      if (!isPassing(error)) throw error;
      this.#isUncertain ||= !(error instanceof NoAnswerError) || error.mayHaveArrived;
      if (!this.#isUncertain || this.#passed.now() - start > ACQUIRE_WITHIN_MS) throw error;
      return undefined;
    }
  }

  #creation(): TicketOptions {
    const { serverUuid, scope, id, action, expiresMs, requestId } = this.#request;
    const idempotencyKey = `${requestId}.${this.#usedKeys}`;
    return { serverUuid, scope, id, action, expiresInSeconds: expiresMs / 1000, requestId, idempotencyKey };
  }

  #mine(limits: CallLimits = {}): Promise<Ticket[]> {
    const { serverUuid, scope, id, requestId: reqid } = this.#request;
    return this.#deps.client.openTickets(serverUuid, { scope, id, reqid }, limits);
  }

  /** Renews the ticket in time, and checks more often that it still exists. */
  async #keep(): Promise<void> {
    const { clock } = this.#deps;
    const done = this.#done.signal;
    const renewMs = (this.#request.expiresMs - this.#request.marginMs) / 3;
    let renewAt = this.#passed.now() + (this.#isUncertain ? 0 : renewMs);
    while (!done.aborted && !this.lost.aborted) {
      const pauseMs = Math.min(POLL_MS, renewMs, Math.max(0, this.#leftMs()));
      await clock.sleep(Math.max(50, pauseMs), done);
      if (done.aborted) return;
      const isDue = this.#passed.now() >= renewAt;
      const isKnown = await this.#within(isDue ? (signal) => this.#renew(signal) : (signal) => this.#poll(signal));
      if (isDue && isKnown) renewAt = this.#passed.now() + renewMs;
      this.#loseIfExpired();
    }
  }

  /** How long the lock is certainly still held. */
  #leftMs(): number {
    return this.#heldUntil - this.#request.marginMs - this.#passed.now();
  }

  /** Returns whether an instance answered. Takes no longer than the lock is certainly held. */
  async #within(ask: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
    const enough = new AbortController();
    const timer = this.#deps.clock.after(Math.max(0, this.#leftMs()), () => enough.abort(new Error('no time left')));
    try {
      await ask(AbortSignal.any([enough.signal, this.#done.signal]));
      return true;
    } catch (error) {
      if (isOver(error)) this.#lose(error.message);
      return false;
    } finally {
      timer.cancel();
    }
  }

  async #renew(signal: AbortSignal): Promise<void> {
    const sentAt = this.#passed.now();
    await this.#deps.client.renewTicket(this.uuid, this.#request.expiresMs / 1000, this.#limits(signal));
    this.#heldUntil = sentAt + this.#request.expiresMs;
  }

  async #poll(signal: AbortSignal): Promise<void> {
    const { status } = await this.#deps.client.ticket(this.uuid, this.#limits(signal));
    if (status !== 'queued' && status !== 'active') this.#lose(`ticket ${this.uuid} is ${status}`);
  }

  /**
   * Limits each attempt, so that a frozen instance does not cost the lock while another one could
   * renew it.
   */
  #limits(signal: AbortSignal) {
    const withinMs = Math.min(MAX_TIMEOUT_MS, Math.max(MIN_TIMEOUT_MS, this.#request.expiresMs / 10));
    return { signal, withinMs, patienceMs: 0 };
  }

  #loseIfExpired(): void {
    if (this.#leftMs() > 0 || this.#done.signal.aborted) return;
    this.#lost.abort(new LockLostError(`ticket ${this.uuid} could not be renewed in time`));
  }

  #lose(reason: string): void {
    if (this.#done.signal.aborted) return;
    this.#lossError ??= new LockLostError(reason);
    this.#lost.abort(this.#lossError);
  }
}

/** No instance answered, or none could serve the request at that time. */
function isPassing(error: unknown): boolean {
  return (
    error instanceof NoAnswerError || (error instanceof ApiError && [502, 503, 504, 429].includes(error.statusCode))
  );
}

/** An instance reports that the ticket has ended or does not exist. */
function isOver(error: unknown): error is ApiError {
  return error instanceof ApiError && [404, 409].includes(error.statusCode);
}

function secondsTo(until: number, clock: Clock): number {
  return Math.max(0, Math.min(WAIT_SECONDS, Math.ceil((until - clock.now()) / 1000)));
}

function unlessGone(error: unknown): void {
  if (!(error instanceof ApiError && error.statusCode === 404)) throw error;
}
