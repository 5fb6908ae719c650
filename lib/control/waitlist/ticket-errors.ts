/** Ticket errors that a caller can act on. Thrown by `Waitlist`. */
import { CnapiError } from '../../platform/errors.ts';
import type { Issue } from '../../protocol/api/contract/contract.ts';
import type { TicketStatus } from './ticket.ts';

/**
 * The ticket does not exist or was deleted. The texts are Triton's; a wait has its own text.
 */
export class TicketNotFoundError extends CnapiError {
  readonly ticketUuid: string;
  constructor(ticketUuid: string, { isAwaited = false } = {}) {
    super('ResourceNotFound', 404, isAwaited ? `no such ticket ${ticketUuid}` : `ticket ${ticketUuid} not found`);
    this.ticketUuid = ticketUuid;
  }
}

/** A field has a value that no ticket can have. Triton's CNAPI crashed on it. */
export class InvalidTicketError extends CnapiError {
  constructor({ field, message }: Issue) {
    super('InvalidParameters', 400, 'Request parameters failed validation', {
      errors: [{ field, code: 'Invalid', message: `${field} ${message}` }],
    });
  }
}

/** An ended ticket cannot be renewed. */
export class TicketEndedError extends CnapiError {
  readonly ticketUuid: string;
  constructor(ticketUuid: string, status: TicketStatus) {
    super('TicketEnded', 409, `Ticket ${ticketUuid} is ${status} and cannot be renewed; create another one`);
    this.ticketUuid = ticketUuid;
  }
}

/** The key was already used for this server with another request. */
export class TicketKeyConflictError extends CnapiError {
  readonly ticketUuid: string;
  constructor(ticketUuid: string, key: string) {
    const message = `Idempotency key '${key}' was used for ticket ${ticketUuid} with another body; use a new key for a new ticket`;
    super('IdempotencyConflict', 409, message);
    this.ticketUuid = ticketUuid;
  }
}

/** The queue, or its server, already holds as many active and queued tickets as it may. */
export class TooManyTicketsError extends CnapiError {
  constructor(holder: string, limit: number) {
    super('TooManyTickets', 503, `${holder} already holds ${limit} tickets; try again when some have ended`, {
      retryAfterSeconds: 5,
    });
  }
}
