/** Answers the route of live events (lib/protocol/api/events.ts). Any instance serves all of them. */
import { type EventKind, eventContracts } from '../../protocol/api/events.ts';
import { STREAM_BYTES } from '../http/reply/event-stream.ts';
import { bind, type Route, type ServerSentEvent, stream } from '../http/route.ts';
import type { DeliveredEvent, Events } from './events.ts';

export function eventRoutes({ events }: { events: Pick<Events, 'follow'> }): Route[] {
  return bind(
    eventContracts,
    {
      async FollowEvents({ params, header, signal }) {
        // A browser that resumes sends the old URL with a new header.
        const after = header('Last-Event-ID') || params.after;
        const filter = { kinds: params.kind as EventKind[] | undefined, serverUuid: params.server };
        const followed = await events.follow(filter, after, signal);
        return stream(toServerSent(followed));
      },
    },
    { FollowEvents: { answerBytes: STREAM_BYTES } },
  );
}

async function* toServerSent(events: AsyncIterable<DeliveredEvent>): AsyncGenerator<ServerSentEvent> {
  for await (const { position, event } of events) {
    if (event === undefined) yield { id: position };
    else yield { id: position, name: event.kind, data: { ...event.body, time: event.storedAt.toISOString() } };
  }
}
