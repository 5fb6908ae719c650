/**
 * The answer to a wait for a ticket. 204 means that the ticket is active, and nothing else does: a
 * caller that checks only for an error must never mistake an abandoned wait for a lock that it
 * holds. Pure; called by `ticket-routes.ts`.
 */
import { CnapiError } from '../../../platform/errors.ts';
import { empty } from '../../http/route.ts';
import type { WaitResult } from '../waitlist.ts';

/**
 * The time is up and the ticket is still queued. The caller can repeat the request and loses
 * nothing.
 */
class TicketWaitTimeoutError extends CnapiError {
  constructor(ticketUuid: string, seconds: number) {
    const message = `Ticket ${ticketUuid} is still queued after ${seconds} s; wait again, or delete it`;
    super('TicketWaitTimeout', 408, message, { retryAfterSeconds: 0 });
  }
}

/** Triton's CNAPI waits for ever here. */
class TicketFinishedError extends CnapiError {
  constructor(ticketUuid: string) {
    super('TicketFinished', 409, `Ticket ${ticketUuid} is finished and will not be active; create another one`);
  }
}

/** Triton's CNAPI waits for ever here. */
class TicketDeletedError extends CnapiError {
  constructor(ticketUuid: string) {
    super('ResourceNotFound', 404, `Ticket ${ticketUuid} was deleted while it was waited for`);
  }
}

/** Status, code and both texts are Triton's, because clients know them. */
class TicketExpiredError extends CnapiError {
  constructor(ticketUuid: string, atOnce: boolean) {
    super('InternalError', 500, atOnce ? `ticket ${ticketUuid} is expired` : 'ticket has expired');
  }
}

/** @throws TicketWaitTimeoutError, TicketFinishedError, TicketDeletedError, TicketExpiredError */
export function answerWait(ticketUuid: string, { outcome, atOnce }: WaitResult, seconds: number): { status: 204 } {
  switch (outcome) {
    case 'active':
      return empty(204);
    case 'timeout':
      throw new TicketWaitTimeoutError(ticketUuid, seconds);
    case 'finished':
      throw new TicketFinishedError(ticketUuid);
    case 'expired':
      throw new TicketExpiredError(ticketUuid, atOnce);
    case 'deleted':
      throw new TicketDeletedError(ticketUuid);
    default:
      return outcome satisfies never;
  }
}
