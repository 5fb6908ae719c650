/**
 * Workflow jobs: durable work of several steps on one server, in the form of Triton's workflow API,
 * whose pollers read `/jobs/:uuid`. Triton's routes that create such jobs are here as well.
 */
import { z } from 'zod';
import { answer, contracts, errorResponse, type Known } from './contract/contract.ts';
import { idPrefix } from './contract/id-prefix.ts';
import { boolean, boundedText, integer, MAX_LIST, serverUuid, uuid, waitSeconds } from './contract/rules.ts';
import { failures } from './server-tasks.ts';
import { noServer } from './servers.ts';

export const WORKFLOW_NAMES = [
  'server-reboot',
  'server-setup',
  'server-factory-reset',
  'server-update-nics',
  'vm-provision',
] as const;
export const WORKFLOW_EXECUTIONS = ['queued', 'running', 'succeeded', 'failed', 'canceled'] as const;
export const WORKFLOW_PAGE = 100;

const step = answer({
  name: z.string(),
  timeout: z.number().describe('Seconds'),
  retry: z.int().describe('How often it is tried'),
}).meta({ id: 'WorkflowStep' });

const stepResult = answer({
  name: z.string(),
  result: z.string().describe('`OK`; the code of an error of its task that counts as done; or empty'),
  error: z.string().describe('Empty if there is none'),
  error_code: z.string().optional(),
  task_id: uuid().optional().describe('The task that the step had started'),
  started_at: z.string(),
  finished_at: z.string(),
}).meta({ id: 'WorkflowStepResult' });

const job = answer({
  uuid: uuid(),
  name: z.string().describe(`${WORKFLOW_NAMES.join(', ')}; a later version may have more`),
  execution: z.enum(WORKFLOW_EXECUTIONS),
  server_uuid: uuid(),
  vm_uuid: uuid().optional().describe('The VM that it creates'),
  target: z.string().describe('The path of its server'),
  params: z.record(z.string(), z.unknown()),
  actor: z.string().nullable().describe('Who created it'),
  chain: z.array(step).describe('The steps of the job'),
  chain_results: z.array(stepResult).describe('One for each end of a step; a step that is tried again has several'),
  onerror: z.array(step).describe('Steps that undo what it has begun, if it fails or is cancelled'),
  onerror_results: z.array(stepResult),
  created_at: z.string(),
  exec_after: z.string().describe('The same: a job begins immediately'),
  timeout: z.number().describe('Seconds that its steps may take together'),
  elapsed: z.number().optional().describe('Seconds from its creation to its end'),
  finished_at: z.string().optional(),
  cancel_requested: z.boolean(),
  canceled_by: z.string().optional(),
  waiting_for: answer({
    step: z.string(),
    since: z.string(),
    has_begun: z.boolean().optional().describe('Absent from older instances'),
    until: z.string().optional().describe('What ends the step, in words; absent if it waits for nothing'),
    task: z.string().optional().describe('The name of the task whose end it waits for'),
    task_id: uuid().optional().describe('That task, once it exists'),
    tries: z.int().describe('How often the step has failed'),
  })
    .optional()
    .describe('Why it has not ended: its present step'),
  withheld: z
    .boolean()
    .optional()
    .describe('Parameters and the texts of errors are left out: reading them requires a role that may run tasks'),
}).meta({ id: 'WorkflowJob' });

export type WorkflowJob = Known<z.output<typeof job>>;

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const JOB = 'b5e7c0de-1a2b-4c3d-8e4f-5a6b7c8d9e0f';
const TASK = '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11';

const jobExample: WorkflowJob = {
  uuid: JOB,
  name: 'server-reboot',
  execution: 'running',
  server_uuid: SERVER,
  target: `/servers/${SERVER}`,
  params: { server_uuid: SERVER },
  actor: 'alice',
  chain: [
    { name: 'reboot', timeout: 300, retry: 1 },
    { name: 'mark-rebooting', timeout: 300, retry: 3 },
    { name: 'await-boot', timeout: 3600, retry: 1 },
  ],
  chain_results: [
    {
      name: 'reboot',
      result: 'OK',
      error: '',
      task_id: TASK,
      started_at: '2030-01-01T00:00:00.010Z',
      finished_at: '2030-01-01T00:00:00.410Z',
    },
  ],
  onerror: [],
  onerror_results: [],
  created_at: '2030-01-01T00:00:00.000Z',
  exec_after: '2030-01-01T00:00:00.000Z',
  timeout: 4800,
  cancel_requested: false,
  waiting_for: { step: 'mark-rebooting', since: '2030-01-01T00:00:00.410Z', has_begun: true, tries: 0 },
};

export const jobCreated = {
  202: {
    description: 'The job was created, or an equal one of the server is unfinished',
    schema: answer({ job_uuid: uuid() }).meta({ id: 'WorkflowJobUuid' }),
    example: { job_uuid: JOB },
  },
} as const;

const noJob = { 404: errorResponse('No such workflow job', 'ResourceNotFound') };
export const serverBusy = {
  ...noServer,
  409: errorResponse(
    'ServerHasWorkflowJob: another job of the server has not ended; ServerNotRunning: its agent is not connected',
    'ServerHasWorkflowJob',
    'ServerNotRunning',
  ),
  503: errorResponse('TooManyWorkflowJobs: as many jobs are unfinished as there may be', 'TooManyWorkflowJobs'),
};
const jobUuid = { uuid: uuid().describe('As the job was answered') };
export const jobOrigin = {
  creator_uuid: boundedText(100).optional().describe('Kept with the job'),
  origin: boundedText(100).optional().describe('Kept with the job'),
};

const cancelContract = <const Method extends 'POST' | 'PUT'>(method: Method, summary: string) =>
  ({
    method,
    path: '/jobs/:uuid/cancel',
    summary,
    tag: 'workflows',
    origin: 'own',
    params: z.object({ ...jobUuid }),
    preconditions: [],
    responses: {
      200: {
        description: 'Requested. A step that waits ends now, a task when its agent reports its end',
        schema: job,
        example: { ...jobExample, cancel_requested: true, canceled_by: 'alice' },
      },
      ...noJob,
      409: errorResponse('WorkflowJobEnded: the job has ended', 'WorkflowJobEnded'),
    },
  }) as const;

export const workflowContracts = contracts({
  ListWorkflowJobs: {
    method: 'GET',
    path: '/jobs',
    summary: 'Workflow jobs, newest first',
    tag: 'workflows',
    origin: 'own',
    params: z.object({
      execution: z
        .enum(WORKFLOW_EXECUTIONS, `value is none of ${WORKFLOW_EXECUTIONS.join(', ')}`)
        .optional()
        .describe('Only jobs in this execution'),
      name: boundedText(100).optional().describe('Only jobs of this workflow'),
      server_uuid: uuid().optional().describe('Only jobs of this server'),
      id_prefix: idPrefix.optional().describe('The beginning of its uuid'),
      limit: integer('limit', 1, MAX_LIST).optional().describe(`${WORKFLOW_PAGE} when absent`),
      offset: integer('offset', 0, 1_000_000)
        .optional()
        .describe('Jobs to leave out, as in the workflow API of Triton'),
      after: uuid().optional().describe('The last job of the page before'),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.array(job), example: [jobExample] } },
  },
  GetWorkflowJob: {
    method: 'GET',
    path: '/jobs/:uuid',
    summary: 'A workflow job: its steps, what became of them, and what it waits for',
    tag: 'workflows',
    origin: 'own',
    params: z.object({ ...jobUuid }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: job, example: jobExample }, ...noJob },
  },
  WaitWorkflowJob: {
    method: 'GET',
    path: '/jobs/:uuid/wait',
    summary:
      'Waits until the job has ended, or more steps than `seen` have, or more than `begun` have begun; at the timeout it is 200 as well',
    longRequest: 'wait',
    tag: 'workflows',
    origin: 'own',
    params: z.object({
      ...jobUuid,
      timeout: waitSeconds(),
      seen: integer('seen', 0, 1_000_000)
        .optional()
        .describe('How many ends of steps the caller knows: `chain_results` and `onerror_results` together'),
      begun: integer('begun', 0, 1_000_000)
        .optional()
        .describe('How many beginnings of steps the caller knows: as many as ends, and one more if `has_begun`'),
    }),
    preconditions: [],
    responses: {
      200: { description: 'The job: check `execution`', schema: job, example: jobExample },
      ...noJob,
      503: errorResponse(
        'The instance is leaving, or has the maximum number of waits',
        'InstanceDraining',
        'TooManyWaiters',
      ),
    },
  },
  CancelWorkflowJob: cancelContract('POST', "Cancels a workflow job; as in Triton's workflow API"),
  PutWorkflowCancel: cancelContract('PUT', 'The same as POST'),
  RebootServer: {
    method: 'POST',
    path: '/servers/:server_uuid/reboot',
    summary: 'Reboots the server by a job, which ends when the server is back',
    tag: 'workflows',
    origin: 'reference',
    longRequest: 'wait',
    params: z.object({
      ...serverUuid,
      ...jobOrigin,
      drain: boolean()
        .optional()
        .describe('First pauses the agent, and waits until it has no task: at most 15 minutes'),
      nojob: boolean().optional().describe('Only the task `server_reboot`, until its end'),
    }),
    preconditions: ['server', 'running'],
    responses: {
      ...jobCreated,
      204: { description: 'With `nojob`: the server is about to reboot' },
      ...failures,
      409: errorResponse(
        `${serverBusy[409].description}; RebootNotAllowed: its agent says that it was started without --allow-reboot`,
        ...serverBusy[409].codes,
        'RebootNotAllowed',
        'UnknownTask',
      ),
      503: errorResponse(
        'ServiceUnavailable: with `nojob`, the agent does not know the task; TooManyWorkflowJobs: too many are unfinished',
        'ServiceUnavailable',
        'TooManyWorkflowJobs',
        'TooManyTasks',
        'TooManyWaiters',
      ),
    },
  },
});
