/** What a caller receives when a ticket is refused: the code, the status, and advice. */
import t from 'tap';
import {
  InvalidTicketError,
  TicketEndedError,
  TicketKeyConflictError,
  TicketNotFoundError,
  TooManyTicketsError,
} from '../../../lib/control/waitlist/ticket-errors.ts';

t.match(new TicketNotFoundError('x'), {
  ...{ code: 'ResourceNotFound', statusCode: 404, message: /^ticket x not found$/, ticketUuid: 'x' },
});
t.match(new TicketNotFoundError('x', { isAwaited: true }), {
  ...{ code: 'ResourceNotFound', statusCode: 404, message: /^no such ticket x$/, ticketUuid: 'x' },
});
const invalid = new InvalidTicketError({ field: 'scope', message: 'is empty' });
t.match(invalid, { code: 'InvalidParameters', statusCode: 400 });
t.same(invalid.errors, [{ field: 'scope', code: 'Invalid', message: 'scope is empty' }]);
t.match(new TicketEndedError('x', 'expired'), {
  ...{ code: 'TicketEnded', statusCode: 409, message: /Ticket x is expired .*create another/, ticketUuid: 'x' },
});
t.match(new TicketKeyConflictError('x', 'k'), {
  ...{ code: 'IdempotencyConflict', statusCode: 409, message: /'k' was used for ticket x /, ticketUuid: 'x' },
});
t.match(new TooManyTicketsError('Server a', 9), {
  ...{ code: 'TooManyTickets', statusCode: 503, message: /^Server a already holds 9 tickets/, retryAfterSeconds: 5 },
});
