/** Live events of the whole fleet. Any instance serves all of them. */
import { z } from 'zod';
import { EVENT_KINDS, type EventKind } from './event.ts';
import type { DeliveredEvent } from './events.ts';
import { type ServerSentEvent, STREAM_BYTES } from '../http/event-stream.ts';
import { type Route, route } from '../http/route.ts';
import { list, text, uuid } from '../../protocol/api/rules.ts';

const KIND = new RegExp(`^(${EVENT_KINDS.join('|')})$`);

export const eventRoutes: Route[] = [
  route({
    name: 'FollowEvents',
    method: 'GET',
    path: '/events',
    summary:
      'Changes of servers, tasks, tickets and instances as they happen, as server-sent events: status, task, ticket, ' +
      'instance; `gap` where some may be missing. Each has its id, its time and the short form of the object',
    lasts: 'stream',
    answerBytes: STREAM_BYTES,
    tag: 'events',
    origin: 'own',
    params: z.object({
      kind: list('kind', KIND)
        .optional()
        .describe(`Of these kinds only: ${EVENT_KINDS.join(', ')}; several by comma or by giving it again`),
      server: uuid().optional().describe('Of this server only'),
      after: text()
        .optional()
        .describe(
          'Resume after the event with this id, on any instance; 0: all that is kept. Last-Event-ID does the same',
        ),
    }),
    repeatable: ['kind'],
    requestHeaders: { 'Last-Event-ID': 'Resume after the event with this id' },
    preconditions: [],
    responses: {
      200: { description: 'Events, until the caller leaves', schema: z.string(), contentType: 'text/event-stream' },
      409: { description: 'Resume after an event that this log does not know; begin without an id' },
      503: { description: 'This instance has the most followers that it may have; try another one' },
    },
    async handler({ params, services, header, signal }) {
      // A browser that resumes sends the old URL with a new header.
      const after = header('Last-Event-ID') || params.after;
      const filter = { kinds: params.kind as EventKind[] | undefined, serverUuid: params.server };
      const followed = await services.events.follow(filter, after, signal);
      return { status: 200, events: toServerSent(followed) };
    },
  }),
];

async function* toServerSent(events: AsyncIterable<DeliveredEvent>): AsyncGenerator<ServerSentEvent> {
  for await (const { position, event } of events) {
    if (event === undefined) yield { id: position };
    else yield { id: position, name: event.kind, data: { ...event.body, time: event.storedAt.toISOString() } };
  }
}
