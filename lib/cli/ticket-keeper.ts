/**
 * A ticket of the waitlist from its creation to its end, for one holder: taken in spite of lost answers, waited for, renewed,
 * given back. `lost` aborts when the lock can no longer be counted on: an instance says so, or it could not be renewed and
 * may have expired. Used by commands/lock.ts.
 *
 *     taken ──▶ queued ──▶ active ──release()──▶ ended
 *                  └──────────┴── deleted, expired, not renewed in time ──▶ lost
 */
import type { Ticket } from '../client/answers.ts';
import type { CnapiClient, Limits } from '../client/client.ts';
import { ApiError, NoAnswerError } from '../client/client-errors.ts';
import { messageOf } from '../errors.ts';
import type { Clock } from '../ports/clock.ts';
import { PassedTime } from './passed-time.ts';
import { tellPlace } from './place-teller.ts';

export interface KeeperDependencies {
  client: CnapiClient;
  clock: Clock;
  /** Remarks for people. */
  note(text: string): void;
}

export interface KeeperRequest {
  serverUuid: string;
  scope: string;
  id: string;
  action: string;
  expiresMs: number;
  /** How long before its end the lock counts as lost, when it cannot be renewed. */
  marginMs: number;
  requestId: string;
}

/** How a lock is lost, in words. */
export class LockLostError extends Error {}

const WAIT_SECONDS = 10;
const LOOK_MS = 2000;
const PAUSE_MS = 500;
const LEAST_WITHIN_MS = 300;
const MOST_WITHIN_MS = 3000;
/** A lock that nobody takes back is free when its ticket expires. */
const RELEASE_WITHIN_MS = 5000;
/** How long a place is tried for while no instance answers that had taken the request. */
const TAKE_WITHIN_MS = 30_000;

export class TicketKeeper {
  readonly #deps: KeeperDependencies;
  readonly #request: KeeperRequest;
  readonly #lost = new AbortController();
  readonly #done = new AbortController();
  readonly #passed: PassedTime;
  #uuid: string | undefined;
  /** As it was when the ticket was made; empty where that was not answered. */
  #queue: readonly Ticket[] = [];
  #isUncertain = false;
  #goodUntil = 0;
  /** What an instance said of its end, as against what the time says. */
  #told: LockLostError | undefined;
  #renewing: Promise<void> | undefined;

  constructor(deps: KeeperDependencies, request: KeeperRequest) {
    this.#deps = deps;
    this.#request = request;
    this.#passed = new PassedTime(deps.clock);
  }

  /** Its reason is a LockLostError. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  get uuid(): string {
    if (this.#uuid === undefined) throw new Error('no ticket was taken');
    return this.#uuid;
  }

  /** Takes a place and keeps it from then on. @throws ApiError, NoAnswerError; the signal's reason */
  async take(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps;
    const start = this.#passed.now();
    for (;;) {
      const sentAt = this.#passed.now();
      // Not cut short: a ticket that was made must be known, to be given back.
      const taken = await this.#tryToTake(start);
      if (taken !== undefined) {
        this.#uuid = taken;
        // One that is found again was made by the first request at the earliest.
        this.#goodUntil = (this.#isUncertain ? start : sentAt) + this.#request.expiresMs;
        this.#renewing = this.#keep();
      }
      signal.throwIfAborted();
      if (taken !== undefined) return;
      await clock.sleep(PAUSE_MS, signal);
    }
  }

  /** True when it is active, false when it is not by `until` (of the clock). @throws LockLostError, NoAnswerError, ApiError; the signal's reason */
  async untilActive(until: number, signal: AbortSignal): Promise<boolean> {
    const over = new AbortController();
    const either = AbortSignal.any([signal, this.lost, over.signal]);
    const telling = tellPlace(
      this.#deps,
      { ...this.#request, uuid: this.uuid },
      { queue: this.#queue, signal: either },
    );
    try {
      return await this.#wait(until, either);
    } finally {
      over.abort();
      await telling;
    }
  }

  async #wait(until: number, either: AbortSignal): Promise<boolean> {
    const { client, clock } = this.#deps;
    let unanswered: unknown;
    let seconds = 0;
    // However little time there is, it is asked once whether the lock is free.
    do {
      try {
        if ((await client.waitTicket(this.uuid, seconds, either)) === 'active') return true;
        unanswered = undefined;
      } catch (error) {
        either.throwIfAborted();
        if (!isPassing(error)) throw new LockLostError(`ticket ${this.uuid} is over: ${messageOf(error)}`);
        unanswered = error;
        await clock.sleep(PAUSE_MS, either);
      }
      either.throwIfAborted();
      seconds = secondsTo(until, clock);
    } while (clock.now() < until);
    // That it is not our turn must have been said by somebody.
    if (unanswered !== undefined) throw unanswered;
    return false;
  }

  /** @throws LockLostError when it can no longer be counted on: this process may have stood still for a while. */
  confirm(): void {
    this.#loseInTime();
    this.lost.throwIfAborted();
  }

  /** Once the work is done: whether it was done under the lock to its end. @throws LockLostError */
  async confirmToTheEnd(): Promise<void> {
    const { client, clock } = this.#deps;
    const wasGood = !this.lost.aborted && this.#leftMs() > 0;
    const enough = new AbortController();
    const timer = clock.after(MOST_WITHIN_MS, () => enough.abort(new Error('no time left')));
    try {
      const { status } = await client.ticket(this.uuid, this.#limits(enough.signal));
      // Whatever was feared meanwhile: what has ended does not become active again.
      if (status === 'active') return;
      this.#lose(`ticket ${this.uuid} is ${status}`);
    } catch (error) {
      if (isOver(error)) this.#lose(error.message);
    } finally {
      timer.cancel();
    }
    if (this.#told !== undefined) throw this.#told;
    // The time that passed while nobody answered passed after the work was done.
    if (!wasGood) this.confirm();
  }

  /** Resolves when it has been renewed from now on: before that nobody knows what became of it while we stood still. @throws LockLostError */
  async renewAnew(): Promise<void> {
    for (;;) {
      this.confirm();
      const isRenewed = await this.#within((signal) => this.#renew(signal));
      if (this.#done.signal.aborted) return;
      if (isRenewed) return this.confirm();
      await this.#deps.clock.sleep(PAUSE_MS, this.lost);
    }
  }

  /** Gives the lock, or the place, back. False when nobody could be told: it passes on when the ticket expires. */
  async release(): Promise<boolean> {
    this.#done.abort();
    await this.#renewing;
    const { client, clock } = this.#deps;
    const enough = new AbortController();
    const timer = clock.after(RELEASE_WITHIN_MS, () => enough.abort(new Error('no time left')));
    const limits = { signal: enough.signal, withinMs: RELEASE_WITHIN_MS / 3 };
    try {
      if (this.#uuid !== undefined) await client.releaseTicket(this.#uuid, limits).catch(unlessGone);
      if (this.#isUncertain)
        for (const one of await this.#mine(limits)) await client.deleteTicket(one.uuid, limits).catch(unlessGone);
      return true;
    } catch {
      return false;
    } finally {
      timer.cancel();
    }
  }

  /** Undefined: nobody knows, try again. */
  async #tryToTake(start: number): Promise<string | undefined> {
    const { serverUuid, scope, id, action, expiresMs, requestId } = this.#request;
    try {
      // An answer that was lost may have made a ticket: it is found by the request's id.
      const [earlier] = this.#isUncertain ? await this.#mine() : [];
      if (earlier !== undefined) return earlier.uuid;
      const request = { serverUuid, scope, id, action, expiresInSeconds: expiresMs / 1000, requestId };
      const { uuid, queue } = await this.#deps.client.createTicket(request);
      this.#queue = queue;
      return uuid;
    } catch (error) {
      if (!isPassing(error)) throw error;
      this.#isUncertain ||= !(error instanceof NoAnswerError) || error.mayHaveArrived;
      if (!this.#isUncertain || this.#passed.now() - start > TAKE_WITHIN_MS) throw error;
      return undefined;
    }
  }

  #mine(limits: Limits = {}): Promise<Ticket[]> {
    const { serverUuid, scope, id, requestId: reqid } = this.#request;
    return this.#deps.client.openTickets(serverUuid, { scope, id, reqid }, limits);
  }

  /** Renews in time, and looks more often whether it is there still. */
  async #keep(): Promise<void> {
    const { clock } = this.#deps;
    const done = this.#done.signal;
    const renewMs = (this.#request.expiresMs - this.#request.marginMs) / 3;
    let renewAt = this.#passed.now() + (this.#isUncertain ? 0 : renewMs);
    while (!done.aborted && !this.lost.aborted) {
      const pauseMs = Math.min(LOOK_MS, renewMs, Math.max(0, this.#leftMs()));
      await clock.sleep(Math.max(50, pauseMs), done);
      if (done.aborted) return;
      const isDue = this.#passed.now() >= renewAt;
      const isKnown = await this.#within(isDue ? (signal) => this.#renew(signal) : (signal) => this.#look(signal));
      if (isDue && isKnown) renewAt = this.#passed.now() + renewMs;
      this.#loseInTime();
    }
  }

  /** How long the lock can still be counted on. */
  #leftMs(): number {
    return this.#goodUntil - this.#request.marginMs - this.#passed.now();
  }

  /** Whether an instance told. Never lasts longer than the lock can be counted on. */
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
    this.#goodUntil = sentAt + this.#request.expiresMs;
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { status } = await this.#deps.client.ticket(this.uuid, this.#limits(signal));
    if (status !== 'queued' && status !== 'active') this.#lose(`ticket ${this.uuid} is ${status}`);
  }

  /** An instance that stands still must not cost the lock while another one would renew it. */
  #limits(signal: AbortSignal) {
    const withinMs = Math.min(MOST_WITHIN_MS, Math.max(LEAST_WITHIN_MS, this.#request.expiresMs / 10));
    return { signal, withinMs, patienceMs: 0 };
  }

  #loseInTime(): void {
    if (this.#leftMs() > 0 || this.#done.signal.aborted) return;
    this.#lost.abort(new LockLostError(`ticket ${this.uuid} could not be renewed in time`));
  }

  #lose(why: string): void {
    if (this.#done.signal.aborted) return;
    this.#told ??= new LockLostError(why);
    this.#lost.abort(this.#told);
  }
}

/** Nobody answered, or nobody could just then. */
function isPassing(error: unknown): boolean {
  return (
    error instanceof NoAnswerError || (error instanceof ApiError && [502, 503, 504, 429].includes(error.statusCode))
  );
}

/** An instance says that it has ended, or that there is none. */
function isOver(error: unknown): error is ApiError {
  return error instanceof ApiError && [404, 409].includes(error.statusCode);
}

function secondsTo(until: number, clock: Clock): number {
  return Math.max(0, Math.min(WAIT_SECONDS, Math.ceil((until - clock.now()) / 1000)));
}

function unlessGone(error: unknown): void {
  if (!(error instanceof ApiError && error.statusCode === 404)) throw error;
}
