/**
 * The waitlist: tickets, each a place in the queue of one (server, scope, id); the owner of the
 * active ticket holds the lock. Any instance answers for any ticket (law 2). Where the reference
 * does not answer (it waits for ever, or its process ends), this answers with a 4xx.
 */
import { z } from 'zod';
import type { ExpiryRequest } from '../ticket.ts';
import { InstanceDrainingError, InvalidArgumentError, PreconditionFailedError } from '../../http/http-errors.ts';
import { idempotencyKey } from '../../http/idempotency-key.ts';
import { empty, ok, type Route, route } from '../../http/route.ts';
import {
  booleanText,
  integer,
  MAX_WAIT_SECONDS,
  number,
  object,
  text,
  uuid,
  uuidOrDefault,
  waitSeconds,
} from '../../../protocol/api/rules.ts';
import { MAX_LIST, noServer } from '../../servers/routes/server-routes.ts';
import { answerWait } from './ticket-waits.ts';

const ticketExample = {
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

const ticketSchema = z
  .looseObject({
    uuid: uuid(),
    server_uuid: z.string().describe("A server, or 'default' for a lock of the whole datacenter"),
    scope: z.string(),
    id: z.string(),
    action: z.string().optional(),
    extra: z.record(z.string(), z.unknown()),
    expires_at: z.string(),
    created_at: z.string(),
    updated_at: z.string(),
    status: z.enum(['queued', 'active', 'finished', 'expired']),
  })
  .meta({ id: 'Ticket' });

const queueSchema = z
  .looseObject({
    server_uuid: z.string(),
    scope: z.string(),
    id: z.string(),
    depth: z.int().describe('Tickets that wait'),
    holder: z
      .looseObject({ uuid: uuid(), expires_at: z.string(), active_ms: z.int().describe('How long it has been active') })
      .nullable(),
    oldest_waiting_ms: z.int().nullable().describe('How long the first of those that wait has done so'),
    created_at: z.string(),
    updated_at: z.string(),
  })
  .meta({ id: 'Queue' });

const ofServer = { server_uuid: uuidOrDefault().describe('A server, or `default` for locks of the whole datacenter') };
const ofTicket = { ticket_uuid: uuid() };
const noTicket = { 404: { description: 'No such ticket' } };

export const ticketRoutes: Route[] = [
  route({
    name: 'CreateTicket',
    method: 'POST',
    path: '/servers/:server_uuid/tickets',
    summary: 'Takes a place in a queue, which is there from its first ticket on; the first ticket is active at once',
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
        schema: z.object({ uuid: uuid(), queue: z.array(ticketSchema) }),
        example: { uuid: ticketExample.uuid, queue: [ticketExample] },
      },
      400: { description: 'All that is wrong with it, in `errors`' },
      ...noServer,
      409: { description: 'IdempotencyConflict: the key was used with another body' },
      503: { description: 'TooManyTickets: the queue, or its server, has the most tickets that it may have' },
    },
    async handler({ params, services, requestId, header }) {
      const { server_uuid, scope, id, action, extra } = params;
      const ticket = { serverUuid: server_uuid, scope, id, action, extra, expiry: expiryOf(params) };
      const request = { ...ticket, reqId: requestId, idempotencyKey: idempotencyKey(header) };
      return { status: 202, body: await services.waitlist.create(request) };
    },
  }),
  route({
    name: 'ListTickets',
    method: 'GET',
    path: '/servers/:server_uuid/tickets',
    summary: "A server's tickets of every status, or those that are active or queued, in the order of their creation",
    answerBytes: 4 * 1024 * 1024,
    tag: 'waitlist',
    origin: 'reference',
    params: z.object({
      ...ofServer,
      limit: integer('limit', 1, Number.MAX_SAFE_INTEGER).optional().describe('1000 when absent, and at most'),
      offset: integer('offset', 0, 1_000_000_000).optional(),
      attribute: text().optional().describe('No effect'),
      order: text().optional().describe('No effect'),
      open: booleanText()
        .optional()
        .describe('`true`: only those that are active or queued; those below go with it alone'),
      scope: text().optional().describe('Of the queues of this scope'),
      id: text().optional().describe('Of the queues of this id'),
      reqid: text().optional().describe('Made by the request with this `x-request-id`'),
    }),
    preconditions: ['server'],
    responses: { 200: { description: 'OK', schema: z.array(ticketSchema), example: [ticketExample] }, ...noServer },
    async handler({ params, services }) {
      const { server_uuid, limit = MAX_LIST, offset = 0, open = false, scope, id, reqid: reqId } = params;
      if (limit > MAX_LIST) throw new InvalidArgumentError(`limit must be less than ${MAX_LIST}`);
      if (open) return ok(await services.waitlist.listOpen(server_uuid, { scope, id, reqId, limit, offset }));
      if ((scope ?? id ?? reqId) !== undefined)
        throw new InvalidArgumentError('scope, id and reqid are for open tickets: say open=true as well');
      return ok(await services.waitlist.list(server_uuid, { limit, offset }));
    },
  }),
  route({
    name: 'DeleteTickets',
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
    responses: { 204: { description: 'Gone' }, ...noServer, 412: { description: '`force` is missing' } },
    async handler({ params, services }) {
      if (String(params.force) !== 'true')
        throw new PreconditionFailedError('Will not delete all tickets without ?force=true');
      await services.waitlist.deleteAll(params.server_uuid);
      return empty(204);
    },
  }),
  route({
    name: 'GetTicket',
    method: 'GET',
    path: '/tickets/:ticket_uuid',
    summary: 'A ticket in its present state',
    tag: 'waitlist',
    origin: 'reference',
    params: z.object(ofTicket),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: ticketSchema, example: ticketExample }, ...noTicket },
    handler: async ({ params, services }) => ok(await services.waitlist.get(params.ticket_uuid)),
  }),
  route({
    name: 'WaitTicket',
    method: 'GET',
    path: '/tickets/:ticket_uuid/wait',
    summary: 'Answers when the ticket is active, on any instance; with an error when it will not be, or not in time',
    lasts: 'wait',
    tag: 'waitlist',
    origin: 'reference',
    params: z.object({
      ...ofTicket,
      timeout: waitSeconds(),
    }),
    lenient: true,
    preconditions: [],
    responses: {
      204: { description: 'It is active: the lock is yours' },
      404: { description: 'No such ticket, or it was deleted meanwhile' },
      408: { description: 'TicketWaitTimeout: the time is up and it is queued still; wait again' },
      409: { description: 'TicketFinished: it was released' },
      500: { description: 'It has expired, with the reference’s words' },
      503: {
        description:
          'InstanceDraining: this instance is draining; ask again at once, another instance continues the wait',
      },
    },
    async handler({ params, services, signal }) {
      const { ticket_uuid, timeout: seconds = MAX_WAIT_SECONDS } = params;
      const over = services.waitsOver;
      const result = await services.waitlist.wait(ticket_uuid, { timeoutMs: seconds * 1000, signal, over });
      if (result.outcome === 'timeout' && over.aborted) throw new InstanceDrainingError();
      return answerWait(ticket_uuid, result, seconds);
    },
  }),
  route({
    name: 'ReleaseTicket',
    method: 'PUT',
    path: '/tickets/:ticket_uuid/release',
    summary: 'Finishes a ticket, whether active or queued, and lets the next one in; harmless when it has ended',
    tag: 'waitlist',
    origin: 'reference',
    params: z.object(ofTicket),
    lenient: true,
    preconditions: [],
    responses: { 204: { description: 'It has ended' }, ...noTicket },
    async handler({ params, services }) {
      await services.waitlist.release(params.ticket_uuid);
      return empty(204);
    },
  }),
  route({
    name: 'RenewTicket',
    method: 'POST',
    path: '/tickets/:ticket_uuid/renew',
    summary: 'Moves the time at which a ticket expires',
    tag: 'waitlist',
    origin: 'own',
    params: withExpiry(ofTicket),
    preconditions: [],
    responses: {
      200: { description: 'Renewed', schema: ticketSchema, example: ticketExample },
      ...noTicket,
      409: { description: 'TicketEnded: it has expired or was released; what was lost stays lost' },
    },
    handler: async ({ params, services }) => ok(await services.waitlist.renew(params.ticket_uuid, expiryOf(params))),
  }),
  route({
    name: 'DeleteTicket',
    method: 'DELETE',
    path: '/tickets/:ticket_uuid',
    summary: 'Deletes a ticket of any status, and lets the next one in if it was active',
    tag: 'waitlist',
    origin: 'reference',
    params: z.object(ofTicket),
    lenient: true,
    preconditions: [],
    responses: { 204: { description: 'Gone' }, ...noTicket },
    async handler({ params, services }) {
      await services.waitlist.delete(params.ticket_uuid);
      return empty(204);
    },
  }),
  route({
    name: 'ListQueues',
    method: 'GET',
    path: '/waitlist',
    summary: 'The queues: how many wait in each, who holds it and for how long; by server, scope and id',
    answerBytes: 1024 * 1024,
    tag: 'waitlist',
    origin: 'own',
    params: z.object({
      limit: integer('limit', 1, MAX_LIST).optional().describe('1000 when absent'),
      offset: integer('offset', 0, 1_000_000_000).optional(),
    }),
    preconditions: [],
    responses: {
      200: {
        description: 'OK',
        schema: z.array(queueSchema),
        example: [
          {
            server_uuid: ticketExample.server_uuid,
            scope: 'vm',
            id: ticketExample.id,
            depth: 2,
            holder: {
              uuid: ticketExample.uuid,
              action: 'provision',
              expires_at: ticketExample.expires_at,
              active_ms: 4200,
            },
            oldest_waiting_ms: 3100,
            created_at: ticketExample.created_at,
            updated_at: ticketExample.updated_at,
          },
        ],
      },
    },
    handler: async ({ params, services }) =>
      ok(await services.waitlist.queues({ limit: params.limit ?? MAX_LIST, offset: params.offset ?? 0 })),
  }),
];

/**
 * These parameters, and one of `expires_at` and `expires_in`; reports a missing one even if other
 * parameters fail too.
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

interface WithExpiry<Time = unknown, Seconds = unknown> {
  expires_at?: Time | undefined;
  expires_in?: Seconds | undefined;
}

function isGiven({ expires_at, expires_in }: WithExpiry): boolean {
  return expires_at !== undefined || expires_in !== undefined;
}

function isNotGivenTwice({ expires_at, expires_in }: WithExpiry): boolean {
  return expires_at === undefined || expires_in === undefined;
}

function expiryOf({ expires_at, expires_in = 0 }: WithExpiry<string, number>): ExpiryRequest {
  return expires_at === undefined ? { expiresInSeconds: expires_in } : { expiresAt: expires_at };
}
