/** Live events of the whole fleet: each is one change of an object, in short form. */

import { z } from 'zod';
import { TASK_STATUSES, TICKET_STATUSES } from '../statuses.ts';
import { NODEROLE_STATES } from './annealer.ts';
import { answer, contracts, errorResponse, extensibleObject, type Known } from './contract/contract.ts';
import { list, text, uuid } from './contract/rules.ts';
import { JOB_STATUSES } from './push/job-schemas.ts';
import { FIRING_OUTCOMES, SCHEDULE_STATUSES } from './push/schedules.ts';
import { WORKFLOW_EXECUTIONS } from './workflows.ts';

export const EVENT_KINDS = [
  'status',
  'task',
  'vm',
  'ticket',
  'instance',
  'push_job',
  'push_schedule',
  'workflow_job',
  'noderole',
] as const;

/** The form of any kind. Only an instance knows all of them: each noun of documents is a kind. */
const KIND = /^[a-z][a-z0-9_]{0,29}$/;

const time = z.string().describe('When the change was made, by the clock of the database');
const status = z.enum(['running', 'unknown']);

/** The data of an event, by its kind. */
const bodies = {
  status: answer({
    server_uuid: uuid(),
    status,
    previous: status.nullable(),
    reason: z.string(),
    cnapi_uuid: uuid().nullable().describe('The instance that decided it'),
    epoch: z.int(),
    time,
  }),
  task: answer({
    id: uuid(),
    server_uuid: uuid(),
    task: z.string(),
    status: z.enum(['queued', ...TASK_STATUSES]),
    attempt: z.int(),
    time,
  }),
  vm: answer({
    uuid: uuid(),
    server_uuid: uuid(),
    alias: z.string().nullable(),
    owner_uuid: z.string().nullable(),
    state: z.string().describe('`destroyed`: there is no such VM any more'),
    previous: z.string().nullable().describe('Null: the VM is new'),
    time,
  }),
  ticket: answer({
    uuid: uuid(),
    server_uuid: z.string(),
    scope: z.string(),
    id: z.string(),
    status: z.enum([...TICKET_STATUSES, 'deleted']),
    time,
  }),
  instance: answer({
    uuid: uuid(),
    run: uuid(),
    url: z.string(),
    version: z.string(),
    state: z.enum(['live', 'draining', 'stopped', 'lapsed']),
    time,
  }),
  push_job: answer({
    id: uuid(),
    status: z.enum(JOB_STATUSES),
    node_count: z.int(),
    actor: z.string().nullable().describe('Who created it'),
    organization: z.string().nullable().describe('Uuid of its organization'),
    time,
  }),
  push_schedule: answer({
    id: uuid(),
    status: z.enum([...SCHEDULE_STATUSES, 'deleted']),
    change: z
      .enum(['created', 'changed', 'paused', 'resumed', 'fired', 'run', 'deleted'])
      .describe('What happened: `fired`: it used up a time; `run`: a caller ran it beside its times'),
    at: z.string().nullable().describe('When it last fired, or when a caller last ran it'),
    outcome: z.enum(FIRING_OUTCOMES).nullable().describe('What became of the time'),
    reason: z.string().nullable(),
    job: uuid().nullable().describe('The push job that was started'),
    actor: z.string().nullable().describe('Who created it'),
    changed_by: z.string().nullable().describe('Who changed the schedule by UpdatePushSchedule; null for other events'),
    time,
  }),
  workflow_job: answer({
    id: uuid(),
    name: z.string().describe('Of its workflow'),
    server_uuid: uuid(),
    execution: z.enum(WORKFLOW_EXECUTIONS),
    step: z.string().nullable().describe('The present step of the job; null: the job has ended'),
    actor: z.string().nullable().describe('Who created it'),
    time,
  }),
  noderole: answer({
    id: uuid(),
    role: z.string(),
    server_uuid: uuid(),
    deployment: uuid(),
    state: z.enum(NODEROLE_STATES),
    blocked_by: uuid().nullable().describe('The noderole in error because of which it is blocked'),
    time,
  }),
  gap: answer({ message: z.string().describe('Which changes may be missing'), time }),
};

const event = <Kind extends keyof typeof bodies>(kind: Kind) =>
  answer({ id: z.string().describe('Where to resume after it'), event: z.literal(kind), data: bodies[kind] });

/**
 * A change of a document: the kind is its noun, and there are the fields that its declaration
 * names.
 */
const documentEvent = <Kind extends z.ZodType<string>>(kind: Kind) =>
  answer({
    id: z.string(),
    event: kind,
    data: extensibleObject({ uuid: uuid(), change: z.enum(['created', 'updated', 'deleted']), time }),
  });

/** The fields of a server-sent event; `data` is JSON. */
const ownEvents = [
  event('status'),
  event('task'),
  event('vm'),
  event('ticket'),
  event('instance'),
  event('push_job'),
  event('push_schedule'),
  event('workflow_job'),
  event('noderole'),
  event('gap'),
] as const;
const fleetEvent = z.union([...ownEvents, documentEvent(z.string().regex(KIND))]).meta({ id: 'FleetEvent' });

/**
 * The events of an instance with these nouns, for its description: a kind that may be any text
 * would keep typed clients from telling the kinds apart.
 */
export const fleetEventsWith = (nouns: readonly string[]): z.ZodType =>
  z.union(nouns.length === 0 ? ownEvents : [...ownEvents, documentEvent(z.enum(nouns))]).meta({ id: 'FleetEvent' });

export type FleetEvent = Known<z.output<typeof fleetEvent>>;

export const eventContracts = contracts({
  FollowEvents: {
    method: 'GET',
    path: '/events',
    summary:
      'Changes of servers, tasks, VMs, tickets, instances, push jobs, their schedules and documents as they happen, as server-sent events: ' +
      'status, task, vm, ticket, instance, push_job, push_schedule, or the noun of the document; `gap` where some may be missing. Each has its id, its time and the short form of the object',
    longRequest: 'stream',
    tag: 'events',
    origin: 'own',
    params: z.object({
      kind: list('kind', KIND)
        .optional()
        .describe(
          `Of these kinds only: ${EVENT_KINDS.join(', ')}, or a noun of documents; several by comma or by giving it again`,
        ),
      server: uuid().optional().describe('Only events of this server'),
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
      200: { description: 'Events, until the caller leaves', schema: fleetEvent, contentType: 'text/event-stream' },
      409: errorResponse('The event to resume after is not in this log; start again without an id', 'InvalidArgument'),
      503: errorResponse(
        'This instance has the most followers that it may have; try another one',
        'TooManyFollowers',
        'InstanceDraining',
      ),
    },
  },
});
