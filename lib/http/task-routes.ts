/** Tasks: what they are, how they end, and what happens meanwhile. Any instance answers for any task (law 2). */
import { z } from 'zod';
import type { TaskEvent } from '../tasks/task.ts';
import type { ServerSentEvent } from './event-stream.ts';
import { InvalidParametersError } from './http-errors.ts';
import { empty, ok, type Route, route } from './route.ts';
import { integer, MAX_WAIT_SECONDS, uuid, waitSeconds } from './rules.ts';

/** An SQL integer's. */
const MAX_EVENT_ID = 2 ** 31 - 1;

const taskExample = {
  id: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  task: 'nop',
  server_uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  status: 'complete',
  timestamp: '2030-01-01T00:00:00.000Z',
  history: [{ name: 'finish', timestamp: '2030-01-01T00:00:00.120Z', event: {} }],
};

export const taskSchema = z
  .looseObject({
    id: uuid(),
    req_id: z.string().optional(),
    task: z.string(),
    server_uuid: uuid(),
    status: z.enum(['active', 'complete', 'failure']),
    ticket_uuid: uuid().optional().describe('Of the ticket that it was accepted under'),
    timestamp: z.string(),
    history: z.array(
      z.looseObject({ name: z.string(), timestamp: z.string(), event: z.record(z.string(), z.unknown()) }),
    ),
  })
  .meta({ id: 'Task' });

const notFound = { 404: { description: 'No such task' } };
const taskid = { taskid: uuid().describe('As the task was answered') };

export const taskRoutes: Route[] = [
  route({
    name: 'GetTask',
    method: 'GET',
    path: '/tasks/:taskid',
    summary: 'A task as it stands',
    tag: 'tasks',
    origin: 'reference',
    params: z.object(taskid),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: taskSchema, example: taskExample }, ...notFound },
    handler: async ({ params, services }) => ok(await services.tasks.get(params.taskid)),
  }),
  route({
    name: 'WaitTask',
    method: 'GET',
    path: '/tasks/:taskid/wait',
    summary: 'The task at its end, or still active when the time is up; look at its status',
    tag: 'tasks',
    origin: 'reference',
    params: z.object({
      ...taskid,
      timeout: waitSeconds(),
    }),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: taskSchema, example: taskExample }, ...notFound },
    async handler({ params, services, signal }) {
      const timeoutMs = (params.timeout ?? MAX_WAIT_SECONDS) * 1000;
      return ok(await services.tasks.wait(params.taskid, { timeoutMs, signal, over: services.waitsOver }));
    },
  }),
  route({
    name: 'CancelTask',
    method: 'POST',
    path: '/tasks/:taskid/cancel',
    summary: 'Asks for the end of a task; it ends as failure with code Cancelled, or as it had already',
    tag: 'tasks',
    origin: 'own',
    params: z.object(taskid),
    preconditions: [],
    responses: {
      202: { description: 'Asked for', schema: taskSchema },
      ...notFound,
      409: { description: 'It has ended already' },
    },
    handler: async ({ params, services }) => ({ status: 202, body: await services.tasks.cancel(params.taskid) }),
  }),
  route({
    name: 'FollowTask',
    method: 'GET',
    path: '/tasks/:taskid/events',
    summary: 'What happens to a task, from its beginning to its end, as server-sent events',
    tag: 'tasks',
    origin: 'own',
    params: z.object({
      ...taskid,
      after: integer('after', 0, MAX_EVENT_ID)
        .optional()
        .describe('Resume after this event id; Last-Event-ID does the same'),
    }),
    requestHeaders: { 'Last-Event-ID': 'Resume after this event id' },
    preconditions: [],
    responses: {
      200: {
        description: 'Events accepted, started, progress, output, retry; `end` is the last',
        schema: z.string(),
        contentType: 'text/event-stream',
      },
      204: { description: 'The task has ended and nothing comes after that event; do not ask again' },
      ...notFound,
    },
    async handler({ params, services, header, signal }) {
      // A browser that resumes asks at the old address with a new header.
      const after = lastEventId(header('Last-Event-ID')) ?? params.after ?? 0;
      const follow = () => services.tasks.follow(params.taskid, after, { signal, over: services.waitsOver });
      // Read first, so that a task that is not there is a 404 and not a stream that breaks.
      const { status } = await services.tasks.get(params.taskid);
      // A browser that has had the end comes back all the same, and stays away only for a 204.
      if (status !== 'active' && after > 0 && !(await hasAny(follow()))) return empty(204);
      return { status: 200, events: toServerSent(follow()) };
    },
  }),
];

async function* toServerSent(events: AsyncIterable<TaskEvent>): AsyncGenerator<ServerSentEvent> {
  for await (const event of events) yield { id: String(event.seq), name: event.name, data: event };
}

async function hasAny(events: AsyncIterable<unknown>): Promise<boolean> {
  for await (const _ of events) return true;
  return false;
}

function lastEventId(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined;
  if (/^\d{1,10}$/.test(text) && Number(text) <= MAX_EVENT_ID) return Number(text);
  throw new InvalidParametersError(400, [
    { field: 'Last-Event-ID', code: 'Invalid', message: 'value was not the id of an event' },
  ]);
}
