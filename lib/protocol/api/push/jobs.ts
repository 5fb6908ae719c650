/**
 * Push jobs: one command on many servers at the same time, after enough of them have agreed. Any
 * instance answers for any job (law 2). docs/push-jobs.md.
 */
import { z } from 'zod';
import { MAX_PUSH_COMMAND_CHARS, MAX_PUSH_FILE_BYTES, MAX_PUSH_NODES, MAX_TASK_TIMEOUT_MS } from '../../limits.ts';
import { answer, contracts, errorResponse } from '../contract/contract.ts';
import { cursor, nextCursor } from '../contract/cursor.ts';
import { idPrefix } from '../contract/id-prefix.ts';
import { boolean, booleanText, boundedText, integer, serverConditions, text, uuid } from '../contract/rules.ts';
import { jobServers, pushEnvironment, pushFile, pushQuorum, secretNames, startRate } from './job-params.ts';
import { findMemberIssues } from './job-rules.ts';
import { JOB_STATUSES, NODE_STATUSES, pushJob, pushNode } from './job-schemas.ts';
import { wantedTicket } from './tickets.ts';

export const PUSH_PAGE = 100;
const MAX_PAGE = 1000;
export const DEFAULT_RUN_TIMEOUT_MS = 3_600_000;
export const DEFAULT_VOTING_TIMEOUT_MS = 60_000;
export const DEFAULT_ABORT_TIMEOUT_MS = 60_000;

const example = {
  id: 'c0ffee00-1a2b-4c3d-8e4f-5a6b7c8d9e0f',
  command: 'systemctl reload nginx',
  status: 'running',
  quorum: 17,
  node_count: 21,
  counts: { running: 18, succeeded: 2, unavailable: 1 },
  run_timeout_ms: 3_600_000,
  voting_timeout_ms: 60_000,
  capture_output: false,
  actor: 'alice',
  created_at: '2030-01-01T00:00:00.000Z',
  updated_at: '2030-01-01T00:00:00.300Z',
};
const exampleAlone = { ...example, coordinator: '5f0a6d5c-1f3e-4f0b-9d4e-6a1c2b3d4e5f' };
const pageExample = { jobs: [example], next: '1893456000000000_c0ffee00-1a2b-4c3d-8e4f-5a6b7c8d9e0f' };

const page = answer({
  jobs: z.array(pushJob),
  next: nextCursor(),
}).meta({ id: 'PushJobPage' });

const nodeExample = {
  server_uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  name: 'web-1',
  status: 'succeeded',
  task_id: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  exit_code: 0,
  updated_at: '2030-01-01T00:00:01.000Z',
};

const noJob = { 404: errorResponse('No such push job', 'ResourceNotFound') };
const ofJob = { id: uuid().describe('As the job was answered') };

export const pushJobContracts = contracts({
  CreatePushJob: {
    method: 'POST',
    path: '/push-jobs',
    summary: 'Asks the agents of many servers to run one command, and runs it as soon as enough of them are ready',
    tag: 'push jobs',
    origin: 'own',
    params: z.object({
      command: text()
        .min(1, 'value is empty')
        .max(MAX_PUSH_COMMAND_CHARS, `value is longer than ${MAX_PUSH_COMMAND_CHARS} characters`)
        .describe('sh runs it'),
      servers: jobServers
        .optional()
        .describe('Uuids of the servers, each once; or else `where`, `group` or `from_job`'),
      where: serverConditions()
        .optional()
        .describe(
          'Servers that meet all of these conditions on what GET /servers shows, such as `hostname=web-*`, `traits.rack=r1` or `status!=unknown`; `*` is any text',
        ),
      group: boundedText(100).optional().describe('The name of a server group: its servers'),
      from_job: uuid().optional().describe('The servers of this earlier push job'),
      from_status: z
        .enum(NODE_STATUSES, `value is none of ${NODE_STATUSES.join(', ')}`)
        .optional()
        .describe('With `from_job`: only its nodes with this status'),
      quorum: pushQuorum
        .optional()
        .describe('How many nodes must be ready before one starts: a number, or "80%"; all when absent'),
      concurrency: integer('concurrency', 1, MAX_PUSH_NODES)
        .optional()
        .describe('How many nodes run the command at the same time; all when absent'),
      start_rate: startRate()
        .optional()
        .describe('At most this many nodes start per second, evenly; such as 20, or 0.1 for one in ten seconds'),
      max_failures: integer('max_failures', 0, MAX_PUSH_NODES)
        .optional()
        .describe('When more nodes than this have failed, no further node starts and the job ends as aborted'),
      run_timeout_ms: integer('run_timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe(`Counted from the start of the first node; ${DEFAULT_RUN_TIMEOUT_MS} when absent`),
      node_timeout_ms: integer('node_timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe('Counted from the start of each command; when absent, only run_timeout_ms applies'),
      voting_timeout_ms: integer('voting_timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe(`How long votes are waited for; ${DEFAULT_VOTING_TIMEOUT_MS} when absent`),
      user: boundedText(32).min(1, 'value is empty').optional().describe('Run as this user'),
      dir: boundedText(4096)
        .regex(/^\//, 'value is not an absolute path, such as /srv')
        .optional()
        .describe('Run in this directory, an absolute path'),
      env: pushEnvironment.optional(),
      secret_env: secretNames.optional(),
      file: pushFile
        .optional()
        .describe(
          `\`raw:\` or \`base64:\` and the contents of a file, at most ${MAX_PUSH_FILE_BYTES} bytes. CHEF_PUSH_JOB_FILE names it to the command`,
        ),
      ticket: wantedTicket.optional(),
      capture_output: boolean().optional().describe('For clients of Chef; output is kept in any case'),
    }),
    findIssues: findMemberIssues,
    requestHeaders: {
      'Idempotency-Key': 'The same key of the same caller gives the same push job, in its present state',
    },
    preconditions: [],
    responses: {
      201: {
        description: 'Created',
        schema: pushJob,
        example: { ...exampleAlone, status: 'voting', counts: { new: 21 } },
      },
      400: errorResponse('All that is wrong with it, in `errors`; nothing was created', 'InvalidParameters'),
      409: errorResponse('IdempotencyConflict: the key was used with another body', 'IdempotencyConflict'),
      503: errorResponse(
        'Nothing was created: too many jobs are unfinished, or the job with the key was just deleted; try again',
        'TooManyPushJobs',
        'IdempotencyKeyLost',
      ),
    },
  },
  ListPushJobs: {
    method: 'GET',
    path: '/push-jobs',
    summary:
      'Push jobs, newest first. A page may hold fewer than `limit`, even none, when they are large: the last one has no `next`',
    tag: 'push jobs',
    origin: 'own',
    params: z.object({
      status: z
        .enum(JOB_STATUSES, `value is none of ${JOB_STATUSES.join(', ')}`)
        .optional()
        .describe('Only jobs with this status'),
      id_prefix: idPrefix.optional().describe('The beginning of its id'),
      schedule: uuid().optional().describe('Only jobs that this push schedule started, also when it was deleted since'),
      after: cursor.optional().describe('The `next` of a page'),
      limit: integer('limit', 1, MAX_PAGE).optional().describe(`${PUSH_PAGE} when absent`),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: page, example: pageExample } },
  },
  GetPushJob: {
    method: 'GET',
    path: '/push-jobs/:id',
    summary: 'A push job and how many of its nodes are in each state',
    tag: 'push jobs',
    origin: 'own',
    params: z.object(ofJob),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: pushJob, example: exampleAlone }, ...noJob },
  },
  ListPushNodes: {
    method: 'GET',
    path: '/push-jobs/:id/nodes',
    summary: 'The nodes of a push job, in order of their uuids',
    tag: 'push jobs',
    origin: 'own',
    params: z.object({
      ...ofJob,
      status: z
        .enum(NODE_STATUSES, `value is none of ${NODE_STATUSES.join(', ')}`)
        .optional()
        .describe('Only nodes with this status'),
      after: uuid().optional().describe('The `server_uuid` of the last node of the page before'),
      limit: integer('limit', 1, MAX_PAGE).optional().describe(`${MAX_PAGE} when absent`),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.array(pushNode), example: [nodeExample] }, ...noJob },
  },
  ChangePushJob: {
    method: 'POST',
    path: '/push-jobs/:id',
    summary: 'Changes a push job that votes or runs, immediately; null removes a limit',
    tag: 'push jobs',
    origin: 'own',
    params: z.object({
      ...ofJob,
      quorum: pushQuorum.optional().describe('Only while the job votes: as for a new job'),
      concurrency: integer('concurrency', 1, MAX_PUSH_NODES)
        .nullish()
        .describe('Nodes that run already go on when it becomes smaller'),
      start_rate: startRate().nullish(),
      max_failures: integer('max_failures', 0, MAX_PUSH_NODES).nullish(),
      voting_timeout_ms: integer('voting_timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe('Counted from the creation of the job'),
      run_timeout_ms: integer('run_timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe('Counted from the start of the first node. Commands that run already get the new limit'),
    }),
    preconditions: [],
    responses: {
      200: { description: 'Changed', schema: pushJob, example: exampleAlone },
      400: errorResponse('A value that the job cannot have; nothing was changed', 'InvalidParameters'),
      ...noJob,
      409: errorResponse(
        'The job has ended, is being aborted, or runs already and its quorum was to be changed; nothing was changed',
        'PushJobEnded',
        'PushJobNotChangeable',
      ),
    },
  },
  AddPushNodes: {
    method: 'POST',
    path: '/push-jobs/:id/nodes',
    summary:
      'Adds nodes to a push job that votes or runs, until its voting timeout; their agents are asked immediately',
    tag: 'push jobs',
    origin: 'own',
    params: z.object({
      ...ofJob,
      servers: jobServers.describe(
        'Uuids of servers that are not in the job. A quorum in percent counts them while the job votes',
      ),
    }),
    preconditions: [],
    responses: {
      201: { description: 'Added', schema: pushJob, example: exampleAlone },
      400: errorResponse('A server that does not exist, or is a node already; nothing was added', 'InvalidParameters'),
      ...noJob,
      409: errorResponse(
        'The job waits for its ticket, is being aborted, has ended, or takes no more votes; nothing was added',
        'PushJobEnded',
        'PushJobNotChangeable',
      ),
    },
  },
  AbortPushJob: {
    method: 'PUT',
    path: '/push-jobs/:id/abort',
    summary:
      'Ends a push job, or only some of its nodes: nothing more starts, and commands that run are stopped. Repeating it is harmless',
    tag: 'push jobs',
    origin: 'own',
    params: z.object({
      ...ofJob,
      nodes: jobServers
        .optional()
        .describe(
          'Uuids of servers: only these nodes end, and the job goes on; those that have ended stay as they are',
        ),
      soft: booleanText().optional().describe('`true`: commands that run may end by themselves'),
    }),
    preconditions: [],
    responses: {
      202: { description: 'Asked for; the job ends when its nodes have', schema: pushJob },
      400: errorResponse('One of `nodes` is not a node of the job; nothing was asked for', 'InvalidParameters'),
      ...noJob,
      409: errorResponse('The job has ended already', 'PushJobEnded'),
    },
  },
  DeletePushJob: {
    method: 'DELETE',
    path: '/push-jobs/:id',
    summary: 'Deletes a push job that has ended; the tasks of its nodes stay',
    tag: 'push jobs',
    origin: 'own',
    params: z.object(ofJob),
    preconditions: [],
    responses: {
      204: { description: 'Deleted' },
      ...noJob,
      409: errorResponse('The job has not ended: abort it first', 'PushJobNotEnded'),
    },
  },
});
