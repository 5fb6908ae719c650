/**
 * The waitlist: tickets, each a place in the queue of one (server, scope, id); the owner of the
 * active ticket holds the lock. Any instance answers for any ticket (law 2). Where Triton's CNAPI
 * does not answer (it waits for ever, or its process ends), this answers with a 4xx.
 */

import { z } from 'zod';
import { TICKET_STATUSES } from '../statuses.ts';
import { answer, contracts, errorResponse, type Known } from './contract/contract.ts';
import {
  booleanText,
  integer,
  MAX_LIST,
  number,
  object,
  text,
  uuid,
  uuidOrDefault,
  waitSeconds,
} from './contract/rules.ts';
import { noServer } from './servers.ts';

const example = {
  uuid: '9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b10',
  server_uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  scope: 'vm',
  id: '0f2f7f4e-5f0b-4b5e-9d8b-1c2d3e4f5a6b',
  action: 'provision',
  extra: {},
  expires_at: '2030-01-01T00:10:00.000Z',
  created_at: '2030-01-01T00:00:00.000Z',
  updated_at: '2030-01-01T00:00:00.000Z',
  status: 'active',
};

const actor = z
  .string()
  .optional()
  .describe('Who created it: the name of a token or of a trusted network; `open` where no token is required');

const ticket = answer({
  uuid: uuid(),
  server_uuid: z.string().describe("A server, or 'default' for a lock of the whole datacenter"),
  scope: z.string(),
  id: z.string(),
  action: z.string().optional(),
  extra: z.record(z.string(), z.unknown()),
  expires_at: z.string().describe('As the caller wrote it, or ISO 8601'),
  created_at: z.string(),
  updated_at: z.string(),
  status: z.enum(TICKET_STATUSES),
  reqid: z.string().optional().describe('The `x-request-id` of the request that made it'),
  actor,
}).meta({ id: 'Ticket' });

export type Ticket = Known<z.output<typeof ticket>>;

const createdTicket = answer({ uuid: uuid(), queue: z.array(ticket) });

export type CreatedTicket = Known<z.output<typeof createdTicket>>;

const holder = answer({
  uuid: uuid(),
  action: z.string().optional(),
  reqid: z.string().optional(),
  actor,
  expires_at: z.string(),
  active_ms: z.int().describe('How long it has been active'),
});

const queue = answer({
  server_uuid: z.string(),
  scope: z.string(),
  id: z.string(),
  depth: z.int().describe('Tickets that wait'),
  holder: holder.nullable().describe('The active ticket; null in a queue that is about to be repaired'),
  oldest_waiting_ms: z.int().nullable().describe('How long the first of those that wait has done so'),
  created_at: z.string().describe('Since when the queue has not been empty'),
  updated_at: z.string().describe('When a ticket last joined'),
}).meta({ id: 'Queue' });

export type Queue = Known<z.output<typeof queue>>;

const ofServer = { server_uuid: uuidOrDefault().describe('A server, or `default` for locks of the whole datacenter') };
const ofTicket = { ticket_uuid: uuid() };
const noTicket = { 404: errorResponse('No such ticket', 'ResourceNotFound') };

export const ticketContracts = contracts({
  CreateTicket: {
    method: 'POST',
    path: '/servers/:server_uuid/tickets',
    summary:
      'Takes a place in a queue, which is there from its first ticket on; the first ticket is active immediately',
    tag: 'waitlist',
    origin: 'reference',
    params: withExpiry({
      ...ofServer,
      scope: text().describe('What kind of thing is locked'),
      id: text().describe('Which one'),
      action: text().optional(),
      extra: object().optional(),
    }),
    lenient: true,
    referenceAborts: true,
    requestHeaders: {
      'Idempotency-Key': 'The same key for the same server gives the same ticket, in its present state',
    },
    preconditions: ['server'],
    responses: {
      202: {
        description:
          'Taken. `queue` is read after that: the active ticket, the first 1,000 that wait, and the new one; the new one alone if it does not wait; empty if it was deleted meanwhile, or if the queue could not be read. With a repeated Idempotency-Key, the ticket of the first request',
        schema: createdTicket,
        example: { uuid: example.uuid, queue: [example] },
      },
      400: errorResponse('All that is wrong with it, in `errors`', 'InvalidParameters'),
      ...noServer,
      409: errorResponse('IdempotencyConflict: the key was used with another body', 'IdempotencyConflict'),
      503: errorResponse(
        'TooManyTickets: the queue, or its server, has the most tickets that it may have',
        'TooManyTickets',
      ),
    },
  },
  ListTickets: {
    method: 'GET',
    path: '/servers/:server_uuid/tickets',
    summary: "A server's tickets of every status, or those that are active or queued, in the order of their creation",
    tag: 'waitlist',
    origin: 'reference',
    params: z.object({
      ...ofServer,
      limit: integer('limit', 1, Number.MAX_SAFE_INTEGER).optional().describe('1000 when absent, and at most'),
      offset: integer('offset', 0, 1_000_000_000)
        .optional()
        .describe('Leaves out this many at the beginning; 0 when absent'),
      attribute: text().optional().describe('No effect'),
      order: text().optional().describe('No effect'),
      open: booleanText()
        .optional()
        .describe('`true`: only tickets that are active or queued. The parameters below require it'),
      scope: text().optional().describe('Only tickets of the queues with this scope'),
      id: text().optional().describe('Only tickets of the queues with this id'),
      reqid: text().optional().describe('Only the ticket that the request with this `x-request-id` created'),
    }),
    preconditions: ['server'],
    responses: { 200: { description: 'OK', schema: z.array(ticket), example: [example] }, ...noServer },
  },
  DeleteTickets: {
    method: 'DELETE',
    path: '/servers/:server_uuid/tickets',
    summary: "Deletes all of a server's tickets, of every status; waits for them end with an error",
    tag: 'waitlist',
    origin: 'reference',
    params: z.object({
      ...ofServer,
      force: z.union([text(), z.boolean()]).optional().describe('`true`, or nothing is done'),
    }),
    lenient: true,
    preconditions: ['server'],
    responses: {
      204: { description: 'Gone' },
      ...noServer,
      412: errorResponse('`force` is missing', 'PreconditionFailed'),
    },
  },
  GetTicket: {
    method: 'GET',
    path: '/tickets/:ticket_uuid',
    summary: 'A ticket in its present state',
    tag: 'waitlist',
    origin: 'reference',
    params: z.object(ofTicket),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: ticket, example }, ...noTicket },
  },
  WaitTicket: {
    method: 'GET',
    path: '/tickets/:ticket_uuid/wait',
    summary: 'Answers when the ticket is active, at any instance; with an error if it ends first or the wait times out',
    longRequest: 'wait',
    tag: 'waitlist',
    origin: 'reference',
    params: z.object({
      ...ofTicket,
      timeout: waitSeconds(),
    }),
    lenient: true,
    preconditions: [],
    responses: {
      204: { description: 'The ticket is active: the lock is yours' },
      404: errorResponse('No such ticket, or it was deleted meanwhile', 'ResourceNotFound'),
      408: errorResponse(
        'TicketWaitTimeout: the wait timed out and the ticket is still queued; wait again',
        'TicketWaitTimeout',
      ),
      409: errorResponse('TicketFinished: the ticket was released', 'TicketFinished'),
      500: errorResponse("The ticket has expired, with Triton's words", 'InternalError'),
      503: errorResponse(
        'InstanceDraining: this instance is draining; ask again immediately, another instance continues the wait',
        'InstanceDraining',
        'TooManyWaiters',
      ),
    },
  },
  ReleaseTicket: {
    method: 'PUT',
    path: '/tickets/:ticket_uuid/release',
    summary: 'Finishes a ticket, whether active or queued, and lets the next one in; harmless when it has ended',
    tag: 'waitlist',
    origin: 'reference',
    params: z.object(ofTicket),
    lenient: true,
    preconditions: [],
    responses: { 204: { description: 'The ticket has ended' }, ...noTicket },
  },
  RenewTicket: {
    method: 'POST',
    path: '/tickets/:ticket_uuid/renew',
    summary: 'Moves the time at which a ticket expires',
    tag: 'waitlist',
    origin: 'own',
    params: withExpiry(ofTicket),
    preconditions: [],
    responses: {
      200: { description: 'Renewed', schema: ticket, example },
      ...noTicket,
      409: errorResponse('TicketEnded: the ticket has expired or was released; a lost lock stays lost', 'TicketEnded'),
    },
  },
  DeleteTicket: {
    method: 'DELETE',
    path: '/tickets/:ticket_uuid',
    summary: 'Deletes a ticket of any status, and lets the next one in if it was active',
    tag: 'waitlist',
    origin: 'reference',
    params: z.object(ofTicket),
    lenient: true,
    preconditions: [],
    responses: { 204: { description: 'Gone' }, ...noTicket },
  },
  ListQueues: {
    method: 'GET',
    path: '/waitlist',
    summary: 'The queues: how many wait in each, who holds it and for how long; by server, scope and id',
    tag: 'waitlist',
    origin: 'own',
    params: z.object({
      limit: integer('limit', 1, MAX_LIST).optional().describe('1000 when absent'),
      offset: integer('offset', 0, 1_000_000_000)
        .optional()
        .describe('Leaves out this many at the beginning; 0 when absent'),
    }),
    preconditions: [],
    responses: {
      200: {
        description: 'OK',
        schema: z.array(queue),
        example: [
          {
            server_uuid: example.server_uuid,
            scope: 'vm',
            id: example.id,
            depth: 2,
            holder: { uuid: example.uuid, action: 'provision', expires_at: example.expires_at, active_ms: 4200 },
            oldest_waiting_ms: 3100,
            created_at: example.created_at,
            updated_at: example.updated_at,
          },
        ],
      },
    },
  },
});

/**
 * Adds one of `expires_at` and `expires_in` to these parameters; reports a missing one even if
 * other parameters fail too.
 */
function withExpiry<Shape extends z.ZodRawShape>(shape: Shape) {
  const expiry = {
    expires_at: text().optional().describe('ISO 8601, from a year alone on; this or `expires_in`'),
    expires_in: number().optional().describe('Seconds from now, by the clock of the database'),
  };
  const about = { path: ['expires_at'], when: () => true };
  return z
    .object({ ...shape, ...expiry })
    .refine(isGiven, { ...about, message: 'value is missing, and so is expires_in (seconds): give one of them' })
    .refine(isNotGivenTwice, { ...about, message: 'value is given beside expires_in: give one of them' });
}

interface WithExpiry {
  expires_at?: unknown;
  expires_in?: unknown;
}

function isGiven({ expires_at, expires_in }: WithExpiry): boolean {
  return expires_at !== undefined || expires_in !== undefined;
}

function isNotGivenTwice({ expires_at, expires_in }: WithExpiry): boolean {
  return expires_at === undefined || expires_in === undefined;
}
