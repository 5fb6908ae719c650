/**
 * The ticket of one push job, while this instance carries out the job: takes a place in the queue,
 * keeps the ticket valid, and releases it when the job has ended. Another holder of the duty
 * continues after any step: the job's id is the idempotency key of the ticket, and the row in
 * `cnapi_push_tickets` stays until the ticket is released. Owned by `coordinator.ts`.
 */
import { isTemporary } from '../../../platform/errors.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { HeldDuty } from '../../duty/duty.ts';
import { TicketEndedError, TicketNotFoundError, TooManyTicketsError } from '../../waitlist/ticket-errors.ts';
import type { Waitlist } from '../../waitlist/waitlist.ts';
import type { TicketHold } from '../push-job.ts';
import { deletePushTicket, type PushTicketRow, recordPushTicket } from './ticket-store.ts';

export interface PushJobTicketDeps {
  database: Queryable;
  clock: Clock;
  waitlist: Pick<Waitlist, 'create' | 'get' | 'renew' | 'release' | 'wait'>;
}

/** After a renewal that was not answered; until then the ticket is only read. */
const RETRY_MS = 2_000;

export class PushJobTicket {
  readonly #deps: PushJobTicketDeps;
  readonly #duty: HeldDuty;
  readonly #row: PushTicketRow;
  #ticket: string | undefined;
  /** The holder before this one may have renewed it long ago. */
  #renewAt = Number.NEGATIVE_INFINITY;
  #isLost = false;
  #isAwaited = false;

  constructor(deps: PushJobTicketDeps, duty: HeldDuty, row: PushTicketRow) {
    this.#deps = deps;
    this.#duty = duty;
    this.#row = row;
    this.#ticket = row.ticketId;
  }

  get timeoutMs(): number {
    return this.#row.timeoutMs;
  }

  /**
   * Takes the ticket, or renews it, as needed. `changed` is called when it is no longer queued. If
   * the waitlist does not answer, for example because the queue is locked, the answer is `queued`:
   * an abort and the timeouts of the job do not wait for that. @throws DutyLostError
   */
  async ensureHeld(changed: () => void, signal: AbortSignal): Promise<TicketHold> {
    const { clock, waitlist } = this.#deps;
    if (this.#isLost) return 'lost';
    try {
      const ticketId = this.#ticket ?? (await this.#take());
      const isRenewalDue = clock.now() >= this.#renewAt;
      const { status } = isRenewalDue ? await waitlist.renew(ticketId, this.#expiry) : await waitlist.get(ticketId);
      if (isRenewalDue) this.#noteExpiry();
      if (status === 'queued') this.#await(ticketId, changed, signal);
      if (status === 'queued' || status === 'active') return status;
    } catch (error) {
      // The queue is full: the next round asks again.
      if (error instanceof TooManyTicketsError) return 'queued';
      if (isTemporary(error)) {
        this.#renewAt = clock.now() + RETRY_MS;
        return 'queued';
      }
      if (!isOver(error)) throw error;
    }
    this.#isLost = true;
    return 'lost';
  }

  /** Releases the ticket, because the job has ended. @throws DutyLostError */
  async release(): Promise<void> {
    const { database, waitlist } = this.#deps;
    try {
      // If it is not known, the holder before this one may have taken it: the key finds it.
      await waitlist.release(this.#ticket ?? (await this.#take()));
    } catch (error) {
      if (!isOver(error) && !(error instanceof TooManyTicketsError)) throw error;
    }
    await deletePushTicket(database, this.#duty);
  }

  get #expiry() {
    return { expiresInSeconds: this.#row.expiresInSeconds };
  }

  #noteExpiry(): void {
    this.#renewAt = this.#deps.clock.now() + (this.#row.expiresInSeconds * 1_000) / 2;
  }

  async #take(): Promise<string> {
    const { database, waitlist } = this.#deps;
    const { serverUuid, scope, id, actor } = this.#row;
    const jobId = this.#duty.id;
    const { uuid } = await waitlist.create({
      serverUuid,
      scope,
      id,
      actor,
      expiry: this.#expiry,
      action: 'push-job',
      extra: { push_job: jobId },
      reqId: jobId,
      idempotencyKey: `push-job ${jobId}`,
    });
    await recordPushTicket(database, this.#duty, uuid);
    this.#ticket = uuid;
    return uuid;
  }

  #await(ticketId: string, changed: () => void, signal: AbortSignal): void {
    if (this.#isAwaited) return;
    this.#isAwaited = true;
    const over = () => {
      this.#isAwaited = false;
    };
    // Without this wait, for example when this instance has too many waits, each round reads the
    // ticket.
    this.#deps.waitlist
      .wait(ticketId, { timeoutMs: this.#row.timeoutMs, signal })
      .then(changed, () => {})
      .finally(over);
  }
}

const isOver = (error: unknown): boolean => error instanceof TicketEndedError || error instanceof TicketNotFoundError;
