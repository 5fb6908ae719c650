/**
 * A ticket of the waitlist from its creation to its end, for one holder: taken in spite of lost answers, waited for, renewed,
 * given back. `lost` aborts when the lock can no longer be counted on: an instance says so, or it could not be renewed and
 * may have expired. Used by commands/lock.ts.
 *
 *     taken ──▶ queued ──▶ active ──release()──▶ ended
 *                  └──────────┴── deleted, expired, not renewed in time ──▶ lost
 */
import type { Ticket } from '../client/answers.ts';
import type { CnapiClient } from '../client/client.ts';
import { ApiError, NoAnswerError } from '../client/client-errors.ts';
import { messageOf } from '../errors.ts';
import type { Clock } from '../ports/clock.ts';

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
  #uuid: string | undefined;
  #isUncertain = false;
  #goodUntil = 0;
  #renewing: Promise<void> | undefined;

  constructor(deps: KeeperDependencies, request: KeeperRequest) {
    this.#deps = deps;
    this.#request = request;
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
    const start = clock.now();
    for (;;) {
      const sentAt = clock.now();
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
    const { client, clock, note } = this.#deps;
    const either = AbortSignal.any([signal, this.lost]);
    let said = '';
    let unanswered: unknown;
    while (clock.now() < until) {
      const seconds = Math.max(0, Math.min(WAIT_SECONDS, Math.ceil((until - clock.now()) / 1000)));
      try {
        if ((await client.waitTicket(this.uuid, said === '' ? 0 : seconds, either)) === 'active') return true;
        unanswered = undefined;
        const place = await this.#place();
        if (place !== said) note(place);
        said = place;
      } catch (error) {
        either.throwIfAborted();
        if (!isPassing(error)) throw new LockLostError(`ticket ${this.uuid} is over: ${messageOf(error)}`);
        unanswered = error;
        await clock.sleep(PAUSE_MS, either);
      }
      either.throwIfAborted();
    }
    // That it is not our turn must have been said by somebody.
    if (unanswered !== undefined) throw unanswered;
    return false;
  }

  /** @throws LockLostError when it can no longer be counted on: this process may have stood still for a while. */
  confirm(): void {
    if (this.#deps.clock.now() >= this.#goodUntil - this.#request.marginMs)
      this.#lose(`ticket ${this.uuid} could not be renewed in time`);
    this.lost.throwIfAborted();
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
        for (const one of await this.#mine()) await client.deleteTicket(one.uuid).catch(unlessGone);
      return true;
    } catch {
      return false;
    } finally {
      timer.cancel();
    }
  }

  /** Undefined: nobody knows, try again. */
  async #tryToTake(start: number): Promise<string | undefined> {
    const { client, clock } = this.#deps;
    const { serverUuid, scope, id, action, expiresMs, requestId } = this.#request;
    try {
      // An answer that was lost may have made a ticket: it is found by the request's id.
      const [earlier] = this.#isUncertain ? await this.#mine() : [];
      if (earlier !== undefined) return earlier.uuid;
      const request = { serverUuid, scope, id, action, expiresInSeconds: expiresMs / 1000, requestId };
      return (await client.createTicket(request)).uuid;
    } catch (error) {
      if (!isPassing(error)) throw error;
      this.#isUncertain ||= !(error instanceof NoAnswerError) || error.mayHaveArrived;
      if (!this.#isUncertain || clock.now() - start > TAKE_WITHIN_MS) throw error;
      return undefined;
    }
  }

  async #mine(): Promise<Ticket[]> {
    const { serverUuid, requestId } = this.#request;
    const all = await this.#deps.client.tickets(serverUuid);
    return all.filter(({ reqid, status }) => reqid === requestId && (status === 'queued' || status === 'active'));
  }

  async #place(): Promise<string> {
    const { serverUuid, scope, id } = this.#request;
    const all = await this.#deps.client.tickets(serverUuid);
    const queue = all.filter(
      (one) => one.scope === scope && one.id === id && ['queued', 'active'].includes(one.status),
    );
    const ahead = queue.findIndex(({ uuid }) => uuid === this.uuid);
    const holder = queue.find(({ status }) => status === 'active');
    const held =
      holder === undefined ? '' : `, held by ticket ${holder.uuid}${holder.action ? ` (${holder.action})` : ''}`;
    return ahead <= 0 ? 'waiting for the lock: next' : `waiting for the lock: ${ahead} ahead${held}`;
  }

  /** Renews in time, and looks more often whether it is there still. */
  async #keep(): Promise<void> {
    const { clock } = this.#deps;
    const { expiresMs, marginMs } = this.#request;
    const done = this.#done.signal;
    const renewMs = expiresMs / 3;
    let renewAt = clock.now() + (this.#isUncertain ? 0 : renewMs);
    while (!done.aborted && !this.lost.aborted) {
      const pauseMs = Math.min(LOOK_MS, renewMs, Math.max(0, this.#goodUntil - marginMs - clock.now()));
      await clock.sleep(Math.max(50, pauseMs), done);
      if (done.aborted) return;
      const isDue = clock.now() >= renewAt;
      const isKnown = await this.#within(isDue ? (signal) => this.#renew(signal) : (signal) => this.#look(signal));
      if (isDue && isKnown) renewAt = clock.now() + renewMs;
      if (!done.aborted && clock.now() >= this.#goodUntil - marginMs)
        this.#lose(`ticket ${this.uuid} could not be renewed in time`);
    }
  }

  /** Whether an instance told. Never lasts longer than the lock can be counted on. */
  async #within(ask: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
    const { clock } = this.#deps;
    const enough = new AbortController();
    const leftMs = this.#goodUntil - this.#request.marginMs - clock.now();
    const timer = clock.after(Math.max(0, leftMs), () => enough.abort(new Error('no time left')));
    try {
      await ask(AbortSignal.any([enough.signal, this.#done.signal]));
      return true;
    } catch (error) {
      if (error instanceof ApiError && [404, 409].includes(error.statusCode)) this.#lose(error.message);
      return false;
    } finally {
      timer.cancel();
    }
  }

  async #renew(signal: AbortSignal): Promise<void> {
    const { client, clock } = this.#deps;
    const sentAt = clock.now();
    await client.renewTicket(this.uuid, this.#request.expiresMs / 1000, this.#limits(signal));
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

  #lose(why: string): void {
    if (!this.#done.signal.aborted) this.#lost.abort(new LockLostError(why));
  }
}

/** Nobody answered, or nobody could just then. */
function isPassing(error: unknown): boolean {
  return (
    error instanceof NoAnswerError || (error instanceof ApiError && [502, 503, 504, 429].includes(error.statusCode))
  );
}

function unlessGone(error: unknown): void {
  if (!(error instanceof ApiError && error.statusCode === 404)) throw error;
}
