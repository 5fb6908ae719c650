/**
 * What happens to a push job, live: its statuses, those of its nodes, and the events and output of
 * the commands on all of them, in one stream.
 */
import { z } from 'zod';
import { answer, contracts, errorResponse, type Known } from '../contract/contract.ts';
import { boundedText, uuid } from '../contract/rules.ts';
import { taskEvent } from '../tasks.ts';
import { pushJob, pushNode } from './job-schemas.ts';

export const PUSH_EVENTS = ['job', 'node', 'task'] as const;

/** The position of a stream after the job's end. */
export const PUSH_STREAM_END = 'end';

const event = <Name extends (typeof PUSH_EVENTS)[number], Data extends z.ZodType>(name: Name, data: Data) =>
  answer({ id: z.string().describe('Where to resume'), event: z.literal(name), data });

const pushEvent = z
  .discriminatedUnion('event', [
    event('job', pushJob),
    event('node', pushNode),
    event('task', answer({ server_uuid: uuid(), task_id: uuid(), event: taskEvent })),
  ])
  .meta({ id: 'PushEvent' });

export type PushEvent = Known<z.output<typeof pushEvent>>;

export const pushEventContracts = contracts({
  FollowPushJob: {
    method: 'GET',
    path: '/push-jobs/:id/events',
    summary:
      'What happens to a push job, from its beginning to its end, as server-sent events: `job` for each of its statuses, `node` ' +
      'for those of its nodes, `task` for the output of the commands and all else that happens to them',
    longRequest: 'stream',
    tag: 'push jobs',
    origin: 'own',
    params: z.object({
      id: uuid().describe('As the job was answered'),
      after: boundedText(40)
        .optional()
        .describe(
          'Resume at this event id, on any instance; Last-Event-ID does the same. The events of nodes that had not ended come ' +
            'again: `server_uuid` and the `seq` of a task event tell which are known',
        ),
    }),
    requestHeaders: { 'Last-Event-ID': 'Resume at this event id' },
    preconditions: [],
    responses: {
      200: {
        description: 'Events; a `job` with a final status is the last. The end of a node comes after its output',
        schema: pushEvent,
        contentType: 'text/event-stream',
      },
      204: { description: 'The job has ended and nothing comes after that event; do not ask again' },
      404: errorResponse('No such push job', 'ResourceNotFound'),
      503: errorResponse(
        'This instance has the most followers of push jobs that it may have, or is stopping; try another one',
        'TooManyWaiters',
        'TooManyFollowedNodes',
        'ServiceUnavailable',
        'DatabaseBusy',
        'AnswerMemoryFull',
      ),
    },
  },
});
