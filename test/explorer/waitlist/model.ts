/**
 * What the functions in lib/control/waitlist/migrations do to one queue, written a second time for
 * the small worlds. `waitlist-conformance.test.ts` compares it with the functions themselves.
 */
import { isEnded, lifeStage, type TicketStatus } from '../../../lib/control/waitlist/ticket.ts';

export interface Ticket {
  uuid: string;
  /** The number of the queue's row: an empty row is deleted, and the next one starts new places. */
  queue: number;
  place: number;
  status: TicketStatus;
  /** Whether the ticket's expiry has passed. */
  isDue: boolean;
}

export interface Queue {
  tickets: readonly Ticket[];
  /** The number of the current row, or of the last one. */
  key: number;
  /** Zero: there is no row. */
  lastPlace: number;
}

export const newQueue = (): Queue => ({ tickets: [], key: 0, lastPlace: 0 });

const isLive = ({ status }: Ticket): boolean => !isEnded(status);

export const find = ({ tickets }: Queue, uuid: string): Ticket | undefined =>
  tickets.find((ticket) => ticket.uuid === uuid);

/** A ticket only proceeds in its life, as the trigger of its table demands. */
function become(queue: Queue, uuids: readonly string[], status: TicketStatus): Queue {
  const tickets = queue.tickets.map((ticket) => {
    if (!uuids.includes(ticket.uuid)) return ticket;
    if (lifeStage(status) <= lifeStage(ticket.status))
      throw new Error(`${ticket.uuid} is ${ticket.status}, not to be ${status}`);
    return { ...ticket, status };
  });
  return { ...queue, tickets };
}

/** `cnapi_advance_queue`. */
export function advance(queue: Queue): Queue {
  const mine = queue.tickets.filter((ticket) => ticket.queue === queue.key && isLive(ticket));
  if (mine.some(({ status }) => status === 'active')) return queue;
  const waiting = mine.toSorted((one, other) => one.place - other.place);
  const head = waiting.find(({ isDue }) => !isDue);
  const passed = waiting.filter(({ place }) => head === undefined || place < head.place);
  const expired = become(
    queue,
    passed.map(({ uuid }) => uuid),
    'expired',
  );
  return head === undefined ? { ...expired, lastPlace: 0 } : become(expired, [head.uuid], 'active');
}

/** `addTicket`. */
export function create(queue: Queue, uuid: string, isDue = false): Queue {
  const isFirst = queue.lastPlace === 0;
  const key = isFirst ? queue.key + 1 : queue.key;
  const place = queue.lastPlace + 1;
  const status = isFirst ? 'active' : 'queued';
  return { key, lastPlace: place, tickets: [...queue.tickets, { uuid, queue: key, place, status, isDue }] };
}

/** `releaseTicket`. */
export function release(queue: Queue, uuid: string, next = advance): Queue {
  const ticket = find(queue, uuid);
  return ticket && isLive(ticket) ? next(become(queue, [uuid], 'finished')) : queue;
}

/** `renewTicket`. */
export function renew(queue: Queue, uuid: string, isDue = false): Queue {
  const ticket = find(queue, uuid);
  if (ticket === undefined || !isLive(ticket)) return queue;
  if (ticket.isDue) return advance(become(queue, [uuid], 'expired'));
  const tickets = queue.tickets.map((one) => (one === ticket ? { ...one, isDue } : one));
  return { ...queue, tickets };
}

/** `deleteTicket`. */
export function remove(queue: Queue, uuid: string, next = advance): Queue {
  const ticket = find(queue, uuid);
  const rest = { ...queue, tickets: queue.tickets.filter((one) => one !== ticket) };
  return ticket && isLive(ticket) ? next(rest) : rest;
}

/** `deleteQueues`, with all live tickets. */
export function removeAll(queue: Queue): Queue {
  return { ...queue, lastPlace: 0, tickets: queue.tickets.filter((ticket) => !isLive(ticket)) };
}

/** `expireTickets`, with all due tickets. */
export function expire(queue: Queue, next = advance): Queue {
  const due = queue.tickets.filter((ticket) => isLive(ticket) && ticket.isDue);
  const uuids = (status: TicketStatus) => due.flatMap((ticket) => (ticket.status === status ? [ticket.uuid] : []));
  const waiting = become(queue, uuids('queued'), 'expired');
  const active = uuids('active');
  return active.length === 0 ? waiting : next(become(waiting, active, 'expired'));
}

/** `repairQueues`. */
export function repair(queue: Queue): Queue {
  return queue.lastPlace === 0 ? queue : advance(queue);
}
