/**
 * Answers the route of live events (lib/protocol/api/events.ts). Any instance serves all of them.
 */
import { InvalidParametersError } from '../../../platform/errors.ts';
import { EVENT_KINDS, eventContracts } from '../../../protocol/api/events.ts';
import { STREAM_BYTES } from '../../http/answer/event-stream.ts';
import { bind, type Route, type ServerSentEvent, stream } from '../../http/route.ts';
import type { DeliveredEvent, Events } from '../events.ts';
import { toEventData } from './event-view.ts';

interface EventRouteDeps {
  events: Pick<Events, 'follow'>;
  /** The nouns of documents. */
  documentKinds?: readonly string[];
}

export function eventRoutes({ events, documentKinds = [] }: EventRouteDeps): Route[] {
  const knownKinds: ReadonlySet<string> = new Set([...EVENT_KINDS, ...documentKinds]);
  return bind(
    eventContracts,
    {
      async FollowEvents({ params, header, signal }) {
        // A browser that resumes sends the old URL with a new header.
        const after = header('Last-Event-ID') || params.after;
        if (!(params.kind ?? []).every((kind) => knownKinds.has(kind))) throw new UnknownKindError(knownKinds);
        const filter = { kinds: params.kind, serverUuid: params.server };
        const followed = await events.follow(filter, after, signal);
        return stream(toServerSent(followed));
      },
    },
    { FollowEvents: { answerBytes: STREAM_BYTES } },
  );
}

class UnknownKindError extends InvalidParametersError {
  constructor(known: ReadonlySet<string>) {
    const message = `Invalid value for param 'kind': there are ${[...known].join(', ')}`;
    super(400, [{ field: 'kind', code: 'Invalid', message }]);
  }
}

async function* toServerSent(events: AsyncIterable<DeliveredEvent>): AsyncGenerator<ServerSentEvent> {
  for await (const { position, event } of events) {
    if (event === undefined) yield { id: position };
    else yield { id: position, name: event.kind, data: toEventData(event) };
  }
}
