/**
 * Tasks: what they are, how they end, and what happens until then. Any instance answers for any
 * task (law 2). `server-tasks.ts` has the routes that create them.
 */

import { z } from 'zod';
import { OUTPUT_STREAMS } from '../output-streams.ts';
import { TASK_OUTCOMES, TASK_STATUSES } from '../statuses.ts';
import { answer, contracts, errorResponse, type Known } from './contract/contract.ts';
import { cursor, nextCursor } from './contract/cursor.ts';
import { idPrefix } from './contract/id-prefix.ts';
import { boundedText, integer, taskWaitSeconds, timestamp, uuid } from './contract/rules.ts';

/** The maximum of an SQL integer. */
export const MAX_EVENT_ID = 2 ** 31 - 1;
const MAX_PAGE = 1000;
export const TASK_PAGE = 100;

const example = {
  id: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  task: 'nop',
  server_uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  status: 'complete',
  timestamp: '2030-01-01T00:00:00.000Z',
  history: [{ name: 'finish', timestamp: '2030-01-01T00:00:00.120Z', event: {} }],
  params: {},
  attempt: 1,
  timeout_ms: 3_600_000,
  idempotent: true,
  cancel_requested: false,
  started_at: '2030-01-01T00:00:00.004Z',
  finished_at: '2030-01-01T00:00:00.120Z',
};

const json = z.record(z.string(), z.unknown());
const status = z.enum(TASK_STATUSES);
const withheld = z
  .boolean()
  .optional()
  .describe('Params, output, result and messages are left out: reading them requires a role that may run tasks');

const task = answer({
  id: uuid(),
  req_id: z.string().optional().describe('The `x-request-id` of the request that created it'),
  task: z.string(),
  server_uuid: uuid(),
  status,
  withheld,
  ticket_uuid: uuid().optional().describe('Uuid of the ticket under which the task was accepted'),
  timestamp: z.string().describe('When it was created'),
  started_at: z.string().optional(),
  finished_at: z.string().optional(),
  history: z
    .array(answer({ name: z.string(), timestamp: z.string(), event: json }))
    .describe(
      'After the end `finish` with the result (after `error`, if the task failed); before the end its progress',
    ),
  params: json,
  attempt: z.int(),
  timeout_ms: z.int(),
  idempotent: z.boolean(),
  cancel_requested: z.boolean(),
}).meta({ id: 'Task' });

/** A task as REST serves it. */
export type Task = Known<z.output<typeof task>>;

const listedTask = answer({
  id: uuid(),
  server_uuid: uuid(),
  task: z.string(),
  status,
  withheld,
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
  exit_code: z.int().optional().describe('Exit code of the command that it ran; 128 + N if signal N ended it'),
}).meta({ id: 'ListedTask' });

export type ListedTask = Known<z.output<typeof listedTask>>;

const page = answer({
  tasks: z.array(listedTask),
  next: nextCursor(),
}).meta({ id: 'TaskPage' });

export type TaskPage = Known<z.output<typeof page>>;

const pageExample = {
  tasks: [
    {
      id: example.id,
      server_uuid: example.server_uuid,
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

/** What may happen to a task. */
export const TASK_EVENTS = ['accepted', 'started', 'progress', 'output', 'retry', 'end'] as const;

const event = <Name extends (typeof TASK_EVENTS)[number], Data extends z.ZodType>(name: Name, data: Data) =>
  answer({
    seq: z.int().describe('The id of the event'),
    name: z.literal(name),
    attempt: z.int(),
    timestamp: z.string(),
    reported_at: z.string().optional().describe("By the agent's clock; for display only"),
    data,
    withheld: z
      .boolean()
      .optional()
      .describe('Parts of `data` are left out: reading them requires a role that may run tasks'),
  });

const taskError = answer({
  message: z.string(),
  code: z.string().optional().describe('Absent from an event that is withheld, if it is not a word'),
});

/** What happened to a task; `data` of an event is empty, or as declared for its name. */
export const taskEvent = z
  .discriminatedUnion('name', [
    event('accepted', answer({})),
    event('started', answer({})),
    event('progress', answer({ value: z.number().describe('Per cent done'), message: z.string().optional() })),
    event(
      'output',
      answer({
        stream: z.enum(OUTPUT_STREAMS).optional(),
        offset: z.int().optional().describe('Bytes of this stream before this piece'),
        text: z.string().optional(),
        cut: z.int().optional().describe('Bytes that were dropped from the middle of a long stream, instead of `text`'),
      }),
    ),
    event('retry', answer({ reason: z.string() })),
    event('end', answer({ status: z.enum(TASK_OUTCOMES), result: json.optional(), error: taskError.optional() })),
  ])
  .meta({ id: 'TaskEvent' });

export type TaskEvent = Known<z.output<typeof taskEvent>>;

/** The fields of a server-sent event; `data` is JSON. */
const sentEvent = answer({ id: z.string().describe('Where to resume after it'), event: z.string(), data: taskEvent });

const notFound = { 404: errorResponse('No such task', 'ResourceNotFound') };
const taskid = { taskid: uuid().describe('As the task was answered') };

export const taskContracts = contracts({
  ListTasks: {
    method: 'GET',
    path: '/tasks',
    summary:
      'The tasks of all servers, newest first. A page may hold fewer than `limit`, even none: the last one has no `next`',
    tag: 'tasks',
    origin: 'own',
    params: z.object({
      status: z
        .enum(TASK_STATUSES, 'value is not active, complete or failure')
        .optional()
        .describe('`active` are also those that no agent has taken yet'),
      name: boundedText(100).optional().describe("A name of the agent's catalogue"),
      actor: boundedText(200).optional().describe('Who asked for it'),
      server_uuid: uuid().optional().describe('Only tasks of this server'),
      id_prefix: idPrefix.optional().describe('The beginning of its id'),
      since: timestamp().describe('ISO 8601 with an offset, or a date; created from then on'),
      until: timestamp().describe('ISO 8601 with an offset, or a date; created before then'),
      after: cursor.optional().describe('The `next` of a page'),
      limit: integer('limit', 1, MAX_PAGE).optional().describe(`${TASK_PAGE} when absent`),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: page, example: pageExample } },
  },
  GetTask: {
    method: 'GET',
    path: '/tasks/:taskid',
    summary: 'A task in its present state',
    tag: 'tasks',
    origin: 'reference',
    params: z.object(taskid),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: task, example }, ...notFound },
  },
  WaitTask: {
    method: 'GET',
    path: '/tasks/:taskid/wait',
    summary: 'The task at its end, or still active when the time is up; look at its status',
    longRequest: 'wait',
    tag: 'tasks',
    origin: 'reference',
    params: z.object({
      ...taskid,
      timeout: taskWaitSeconds(),
    }),
    lenient: true,
    preconditions: [],
    responses: {
      200: { description: 'OK', schema: task, example },
      ...notFound,
      503: errorResponse(
        'InstanceDraining: this instance is draining; ask again immediately, another instance continues the wait',
        'InstanceDraining',
        'TooManyWaiters',
      ),
    },
  },
  CancelTask: {
    method: 'POST',
    path: '/tasks/:taskid/cancel',
    summary: 'Cancels a task; it ends as failure with code Cancelled, unless it has already ended',
    tag: 'tasks',
    origin: 'own',
    params: z.object(taskid),
    preconditions: [],
    responses: {
      202: { description: 'Asked for', schema: task },
      ...notFound,
      409: errorResponse('The task has ended already', 'TaskEnded', 'TaskNotCancellable'),
    },
  },
  FollowTask: {
    method: 'GET',
    path: '/tasks/:taskid/events',
    summary: 'What happens to a task, from its beginning to its end, as server-sent events',
    longRequest: 'stream',
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
        schema: sentEvent,
        contentType: 'text/event-stream',
      },
      204: { description: 'The task has ended and nothing comes after that event; do not ask again' },
      ...notFound,
    },
  },
});
