/** Rows of the table: tickets and queues of the waitlist. */

import { createTicketOnce, type KeyedTicket, type TicketKey } from '../../lib/control/waitlist/ticket-keys.ts';
import {
  listOpenTickets,
  listQueues,
  listTickets,
  readQueueTimes,
} from '../../lib/control/waitlist/ticket-list-store.ts';
import {
  addTicket,
  deleteEnded,
  deleteOldTickets,
  deleteQueues,
  deleteTicket,
  expireTickets,
  type MovedTicket,
  type NewTicket,
  readLastQueue,
  readQueueKey,
  readQueueUpTo,
  readTicket,
  readTicketStatuses,
  releaseTicket,
  renewTicket,
  repairQueues,
  type TicketBounds,
  type TicketChange,
  type TicketRefusal,
} from '../../lib/control/waitlist/ticket-store.ts';
import { bounds, newTicket } from '../control/waitlist/support/waitlist-database.ts';
import {
  type CallOf,
  type QueueKind,
  reads,
  type Statement,
  type TicketKind,
  type World,
  writes,
} from './statement.ts';

/** Each change of a ticket is reported to one caller. */
const moves = (moved: readonly MovedTicket[]): string[] =>
  moved.map(({ uuid, status }) => `ticket ${uuid} became ${status}`);

const create = (
  kind: QueueKind,
): CallOf<Parameters<typeof addTicket> extends [unknown, ...infer Args] ? Args : never, unknown> => ({
  args(world) {
    const queue = world.queue(kind);
    return queue && [newTicket(queue, { uuid: world.uuid() }), bounds];
  },
  weight: 30,
});

const createOnce = (kind: QueueKind): CallOf<[NewTicket, TicketKey & TicketBounds], KeyedTicket | TicketRefusal> => ({
  args(world) {
    const queue = world.queue(kind);
    const key = { key: 'key', requestHash: 'hash', maxWaiting: bounds.maxWaiting, maxOpen: bounds.maxOpen };
    return queue && [newTicket(queue, { uuid: world.uuid() }), key];
  },
  exclusive: (made, { uuid }) =>
    typeof made !== 'string' && made.uuid === uuid ? [`the creation of ticket ${uuid}`] : [],
});

const release = (kind: TicketKind): CallOf<[string], TicketChange | undefined> => ({
  args: (world) => one(world, kind),
  exclusive: (change) => moves(change?.moved ?? []),
  weight: 20,
});

const remove = (kind: TicketKind): CallOf<[string], MovedTicket[]> => ({
  args: (world) => one(world, kind),
  exclusive: moves,
  weight: 5,
});

const renew = (kind: TicketKind): CallOf<[string, { inMs: number }], TicketChange | undefined> => ({
  args(world) {
    const uuid = world.ticket(kind);
    return uuid === undefined ? undefined : [uuid, { inMs: 3_600_000 }];
  },
  exclusive: (change) => moves(change?.moved ?? []),
});

function one(world: World, kind: TicketKind): [string] | undefined {
  const uuid = world.ticket(kind);
  return uuid === undefined ? undefined : [uuid];
}

const LAST = Number.MAX_SAFE_INTEGER;

export const ticketStatements: readonly Statement[] = [
  writes(addTicket, {
    'where others wait': create('calm'),
    'where one holds the lock': create('single'),
    'where there is no queue': create('new'),
  }),
  writes(createTicketOnce, {
    'where others wait': createOnce('calm'),
    'where there is no queue': createOnce('new'),
  }),
  writes(releaseTicket, {
    'the active one': release('active'),
    'one that waits': release('next'),
    'the only one': release('single'),
  }),
  writes(renewTicket, { 'the active one': renew('active'), 'one that is due': renew('due') }),
  writes(deleteTicket, {
    'the active one': remove('active'),
    'one that waits': remove('next'),
    'the only one': remove('single'),
  }),
  writes(deleteQueues, {
    "a server's": {
      args: ({ seat }) => [seat.serverUuid, { last: LAST, maxQueues: 10 }],
      exclusive: ({ moved }) => moves(moved),
      weight: 1,
    },
  }),
  writes(deleteEnded, { "a server's": { args: ({ seat }) => [seat.serverUuid, { last: LAST, maxTickets: 100 }] } }),
  writes(deleteOldTickets, { 'older than a day': { args: () => [1, 100] } }),
  writes(expireTickets, { all: { args: () => [100], exclusive: moves } }),
  writes(repairQueues, { all: { args: () => [100], exclusive: ({ moved }) => moves(moved) } }),
  reads(readLastQueue, () => []),
  reads(readQueueKey, (world) => [world.ticket('active') ?? world.uuid()]),
  reads(readQueueUpTo, (world) => [world.ticket('active') ?? world.uuid(), 100]),
  reads(readTicket, (world) => [world.ticket('active') ?? world.uuid()]),
  reads(readTicketStatuses, (world) => [[world.ticket('active') ?? world.uuid()]]),
  reads(listTickets, ({ seat }) => [seat.serverUuid, { limit: 100, offset: 0 }]),
  reads(listOpenTickets, ({ seat }) => [seat.serverUuid, { limit: 100, offset: 0 }]),
  reads(readQueueTimes, (world) => [[world.ticket('active') ?? world.uuid()]]),
  reads(listQueues, () => [{ limit: 100, offset: 0 }]),
];
