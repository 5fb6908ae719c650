/**
 * Tasks: what they are, how they end, and what happens until then. Any instance answers for any
 * task (law 2).
 */
import { z } from 'zod';
import type { Actor } from '../../access/token.ts';
import type { TaskEvent } from '../task.ts';
import { idRangeOf, parsePlace } from '../task-list.ts';
import { moment } from '../../audit/audit-routes.ts';
import { type ServerSentEvent, STREAM_BYTES } from '../../http/event-stream.ts';
import { InstanceDrainingError, InvalidParametersError } from '../../http/http-errors.ts';
import { empty, ok, type Route, route } from '../../http/route.ts';
import { boundedText, integer, MAX_WAIT_SECONDS, taskWaitSeconds, text, uuid } from '../../../protocol/api/rules.ts';
import { eventFor, listedFor, taskFor } from './task-view.ts';

/** The maximum of an SQL integer. */
const MAX_EVENT_ID = 2 ** 31 - 1;

const taskExample = {
  id: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  task: 'nop',
  server_uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  status: 'complete',
  timestamp: '2030-01-01T00:00:00.000Z',
  history: [{ name: 'finish', timestamp: '2030-01-01T00:00:00.120Z', event: {} }],
};

const taskSchema = z
  .looseObject({
    id: uuid(),
    req_id: z.string().optional(),
    task: z.string(),
    server_uuid: uuid(),
    status: z.enum(['active', 'complete', 'failure']),
    withheld: z
      .boolean()
      .optional()
      .describe('Params, output, result and messages are left out: they take a role that may run tasks'),
    ticket_uuid: uuid().optional().describe('Of the ticket that it was accepted under'),
    timestamp: z.string(),
    history: z.array(
      z.looseObject({ name: z.string(), timestamp: z.string(), event: z.record(z.string(), z.unknown()) }),
    ),
  })
  .meta({ id: 'Task' });

const MAX_PAGE = 1000;
const DEFAULT_PAGE = 100;

const listedTask = z.looseObject({
  id: uuid(),
  server_uuid: uuid(),
  task: z.string(),
  status: z.enum(['active', 'complete', 'failure']),
  actor: z
    .string()
    .nullable()
    .describe('Who created it: the name of a token or of a trusted network; `open` where no token is required'),
  timestamp: z.string().describe('When it was created'),
  started_at: z.string().optional(),
  finished_at: z.string().optional(),
  attempt: z.int(),
  cancel_requested: z.boolean(),
  error_code: z.string().optional(),
  summary: z.string().optional().describe('The beginning of what it was to do; for callers who may run tasks'),
  exit_code: z.int().optional().describe('Of the command that it ran'),
});

const pageSchema = z.object({
  tasks: z.array(listedTask),
  next: z.string().optional().describe('Give it as `after` for the next page; absent when there is none'),
});

const pageExample = {
  tasks: [
    {
      id: taskExample.id,
      server_uuid: taskExample.server_uuid,
      task: 'command_execute',
      status: 'complete',
      actor: 'alice',
      timestamp: '2030-01-01T00:00:00.000Z',
      started_at: '2030-01-01T00:00:00.004Z',
      finished_at: '2030-01-01T00:00:00.120Z',
      attempt: 1,
      cancel_requested: false,
      summary: 'uname -sr',
      exit_code: 0,
    },
  ],
  next: '1893456000000000_4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
};

/** The end of a page, as that page returned it. */
const place = text()
  .transform((value, context) => {
    const parsed = parsePlace(value);
    if (parsed === undefined) context.addIssue('value is not the `next` of a page');
    return parsed;
  })
  .meta({ type: 'string' });

const notFound = { 404: { description: 'No such task' } };
const taskid = { taskid: uuid().describe('As the task was answered') };

export const taskRoutes: Route[] = [
  route({
    name: 'ListTasks',
    method: 'GET',
    path: '/tasks',
    summary:
      'The tasks of all servers, newest first. A page may hold fewer than `limit`, even none: the last one has no `next`',
    answerBytes: 2 * 1024 * 1024,
    tag: 'tasks',
    origin: 'own',
    params: z.object({
      status: z.enum(['active', 'complete', 'failure'], 'value is not active, complete or failure').optional(),
      name: boundedText(100).optional().describe("A name of the agent's catalogue"),
      actor: boundedText(200).optional().describe('Who asked for it'),
      server_uuid: uuid().optional(),
      id_prefix: text()
        .toLowerCase()
        .refine(
          (value) => idRangeOf(value) !== undefined,
          'value is not the beginning of an id, of 4 characters or more',
        )
        .optional()
        .describe('The beginning of its id'),
      since: moment().describe('ISO 8601; created from then on'),
      until: moment().describe('ISO 8601; created before then'),
      after: place.optional().describe('The `next` of a page'),
      limit: integer('limit', 1, MAX_PAGE).optional().describe(`${DEFAULT_PAGE} when absent`),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: pageSchema, example: pageExample } },
    async handler({ params, services, actor }) {
      const { server_uuid: serverUuid, id_prefix: idPrefix, limit = DEFAULT_PAGE, ...others } = params;
      const { tasks, ...rest } = await services.tasks.list({ ...others, serverUuid, idPrefix, limit });
      return ok({ tasks: tasks.map((task) => listedFor(actor, task)), ...rest });
    },
  }),
  route({
    name: 'GetTask',
    method: 'GET',
    path: '/tasks/:taskid',
    summary: 'A task in its present state',
    tag: 'tasks',
    origin: 'reference',
    params: z.object(taskid),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: taskSchema, example: taskExample }, ...notFound },
    handler: async ({ params, services, actor }) => ok(taskFor(actor, await services.tasks.get(params.taskid))),
  }),
  route({
    name: 'WaitTask',
    method: 'GET',
    path: '/tasks/:taskid/wait',
    summary: 'The task at its end, or still active when the time is up; look at its status',
    lasts: 'wait',
    tag: 'tasks',
    origin: 'reference',
    params: z.object({
      ...taskid,
      timeout: taskWaitSeconds(),
    }),
    lenient: true,
    preconditions: [],
    responses: {
      200: { description: 'OK', schema: taskSchema, example: taskExample },
      ...notFound,
      503: {
        description:
          'InstanceDraining: this instance is draining; ask again at once, another instance continues the wait',
      },
    },
    async handler({ params, services, signal, actor }) {
      const timeoutMs = (params.timeout ?? MAX_WAIT_SECONDS) * 1000;
      const over = services.waitsOver;
      const task = await services.tasks.wait(params.taskid, { timeoutMs, signal, over });
      // `active` means that the time is up; a job that waits would stop waiting.
      if (task.status === 'active' && over.aborted) throw new InstanceDrainingError();
      return ok(taskFor(actor, task));
    },
  }),
  route({
    name: 'CancelTask',
    method: 'POST',
    path: '/tasks/:taskid/cancel',
    summary: 'Cancels a task; it ends as failure with code Cancelled, unless it has already ended',
    tag: 'tasks',
    origin: 'own',
    params: z.object(taskid),
    preconditions: [],
    responses: {
      202: { description: 'Asked for', schema: taskSchema },
      ...notFound,
      409: { description: 'It has ended already' },
    },
    handler: async ({ params, services, actor }) => ({
      status: 202,
      body: taskFor(actor, await services.tasks.cancel(params.taskid)),
    }),
  }),
  route({
    name: 'FollowTask',
    method: 'GET',
    path: '/tasks/:taskid/events',
    summary: 'What happens to a task, from its beginning to its end, as server-sent events',
    lasts: 'stream',
    answerBytes: STREAM_BYTES,
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
    async handler({ params, services, header, signal, actor }) {
      // A browser that resumes sends the old URL with a new header.
      const after = lastEventId(header('Last-Event-ID')) ?? params.after ?? 0;
      const follow = () => services.tasks.follow(params.taskid, after, { signal, over: services.waitsOver });
      // Read first, so a missing task is a 404 and not a stream that breaks.
      const { status } = await services.tasks.get(params.taskid);
      // A browser reconnects even after the end event, and stops only at a 204.
      if (status !== 'active' && after > 0 && !(await hasAny(follow()))) return empty(204);
      return { status: 200, events: toServerSent(follow(), actor) };
    },
  }),
];

async function* toServerSent(events: AsyncIterable<TaskEvent>, actor: Actor): AsyncGenerator<ServerSentEvent> {
  for await (const event of events) yield { id: String(event.seq), name: event.name, data: eventFor(actor, event) };
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
