/**
 * Work for one server's agent. Asynchronous routes answer with a task's id; Triton's
 * synchronous ones run the task and wait. Either way the task is durable: it continues if its
 * caller disconnects or an instance dies.
 */
import { z } from 'zod';
import { MAX_COMMAND_ARGS, MAX_TASK_TIMEOUT_MS } from '../limits.ts';
import { MAX_SECRET_POINTERS } from '../secret-params.ts';
import { TASKS_TEXT } from '../tasks.ts';
import { commandEnvironment } from './command-environment.ts';
import { answer, contracts, errorResponse, extensibleObject, type Known } from './contract/contract.ts';
import {
  BAD_REQUEST,
  boolean,
  boundedText,
  integer,
  isUuid,
  MAX_LIST,
  object,
  serverUuid,
  text,
  textArray,
  truthy,
  uuid,
} from './contract/rules.ts';
import { noServer } from './servers.ts';

const MAX_COMMAND_MS = 24 * 3_600_000;
export const HISTORY_PAGE = 100;

/** A command, as an agent runs it. */
export const commandParams = {
  script: text().min(1, 'value is empty').describe('sh runs it, or the interpreter that its first line names'),
  args: textArray(MAX_COMMAND_ARGS).optional(),
  env: commandEnvironment.optional(),
  secret_params: z
    .unknown()
    .optional()
    .meta({ type: 'array', items: { type: 'string' }, maxItems: MAX_SECRET_POINTERS })
    .describe('JSON Pointers to what only the agent may see: `/env/PASSWORD`'),
};

/** Refusals of every route that creates a task. */
export const refusals = {
  ...noServer,
  409: errorResponse(
    'ServerNotRunning: its agent is not connected; TicketNotActive, TicketOfAnotherServer: the named ticket is not active, or is for another server',
    'ServerNotRunning',
    'TicketNotActive',
    'TicketOfAnotherServer',
    'UnknownTask',
    'IdempotencyConflict',
    'VmExists',
  ),
  503: errorResponse('TooManyTasks: the queue of the server is full', 'TooManyTasks'),
};

/** Failures of every route that also waits for the task's end. */
export const failures = {
  ...refusals,
  500: errorResponse("The task failed, or did not end in time; the message is the task's", 'InternalError'),
  503: errorResponse(
    'ServiceUnavailable: the instance is stopping and the task continues; do not repeat the request, wait for the task at another instance. TooManyTasks: the queue of the server is full',
    'ServiceUnavailable',
    'TooManyTasks',
    'TooManyWaiters',
  ),
};

/** Failures of every route that may ask a legacy agent. */
const legacyFailures = {
  ...failures,
  500: errorResponse(
    "The task failed, with the task's message, or the legacy agent did not answer",
    'InternalError',
    'NoAgentAddress',
  ),
  503: errorResponse(failures[503].description, ...failures[503].codes, 'TooManyAgentRequests'),
};

export const taskId = answer({ id: uuid() }).meta({ id: 'TaskId' });
export const taskIdExample = { id: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11' };

/**
 * Parameters of every route here that creates a task. A failed check is 400, also on Triton's
 * routes, because Triton does not have the parameter.
 */
export const underTicket = {
  ticket_uuid: z
    .unknown()
    .refine((value) => isUuid(value), { message: 'value is not a UUID', params: BAD_REQUEST })
    .transform((value) => String(value).toLowerCase())
    .optional()
    .meta({ type: 'string', format: 'uuid' })
    .describe('A ticket of this server or of `default`: the task is accepted only while that is active'),
};

/** A legacy agent's entries may have more fields than these. */
const historyEntry = extensibleObject({
  id: uuid().optional(),
  task: z.string(),
  status: z.string(),
  params: z.unknown().optional(),
  started_at: z.string().optional(),
  finished_at: z.string().optional(),
  errorCount: z.number().optional(),
  messages: z.array(z.unknown()).optional(),
  log: z.array(z.unknown()).optional(),
  withheld: z
    .boolean()
    .optional()
    .describe('Params, messages and log are left out: reading them requires a role that may run tasks'),
}).meta({ id: 'TaskHistoryEntry' });

export type TaskHistoryEntry = Known<z.output<typeof historyEntry>>;

/** The result of a command, as the agent's task `command_execute` defines it. */
export const commandResult = answer({ exitCode: z.int().nullable(), stdout: z.string(), stderr: z.string() });

/** A parameter that the route checks itself, because a failure is 412. */
const anyText = (description: string) => z.unknown().optional().meta({ type: 'string' }).describe(description);

export const serverTaskContracts = contracts({
  CreateTask: {
    method: 'POST',
    path: '/servers/:server_uuid/tasks',
    summary: "Accepts a task for the server's agent, durably",
    tag: 'tasks',
    origin: 'own',
    params: z.object({
      ...serverUuid,
      ...underTicket,
      task: text()
        .min(1, 'value is empty')
        .max(100, 'value is longer than 100 characters')
        .describe(
          `A task that the agent knows; with its params: ${TASKS_TEXT}. The instance that holds the agent's connection refuses another name with 409; accepted by a different instance, the task ends with UnknownTask`,
        ),
      params: object()
        .optional()
        .describe('`secret_params` in it lists, as JSON Pointers, which of them only the agent may see'),
      timeout_ms: integer('timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe('How long it may run: a day at most; 3600000 when absent'),
      idempotent: boolean()
        .optional()
        .describe('May run again if it is unknown whether it ran; when absent, the catalogue decides'),
    }),
    requestHeaders: { 'Idempotency-Key': 'The same key for the same server gives the same task' },
    preconditions: ['server'],
    responses: { 202: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...refusals },
  },
  NopTask: {
    method: 'POST',
    path: '/servers/:server_uuid/nop',
    summary: 'A task that does nothing, for `sleep` seconds, or fails with `error`',
    tag: 'tasks',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      ...underTicket,
      sleep: integer('sleep', 0, 86_400).optional(),
      error: boundedText(1000).optional(),
    }),
    lenient: true,
    preconditions: ['server', 'running'],
    responses: { 200: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...refusals },
  },
  CommandExecute: {
    method: 'POST',
    path: '/servers/:server_uuid/execute',
    summary: 'Runs a script and answers with its output: trimmed stdout, or with `json` exit code, stdout and stderr',
    longRequest: 'wait',
    tag: 'tasks',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      ...underTicket,
      ...commandParams,
      timeout: integer('timeout', 1, MAX_COMMAND_MS).optional().describe('Milliseconds'),
      json: truthy().optional(),
    }),
    lenient: true,
    preconditions: ['server', 'running'],
    responses: {
      200: {
        description: 'Executed',
        schema: z.union([z.string(), commandResult]),
        example: { exitCode: 0, stdout: 'ok\n', stderr: '' },
      },
      ...failures,
    },
  },
  RefreshSysinfo: {
    method: 'POST',
    path: '/servers/:server_uuid/sysinfo-refresh',
    summary: 'Has the agent read its sysinfo again, and stores it',
    tag: 'servers',
    origin: 'reference',
    params: z.object({ ...serverUuid, ...underTicket }),
    preconditions: ['server', 'running'],
    responses: { 200: { description: 'Kept' }, ...failures },
  },
  TaskHistory: {
    method: 'GET',
    path: '/servers/:server_uuid/task-history',
    summary:
      "The server's tasks, newest first, from any instance; those of a legacy agent (at most 16) from the agent itself",
    tag: 'tasks',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      limit: integer('limit', 1, MAX_LIST).optional().describe(`${HISTORY_PAGE} when absent`),
    }),
    preconditions: ['server'],
    responses: {
      200: { description: 'OK', schema: z.array(historyEntry) },
      ...noServer,
      500: errorResponse('The legacy agent did not answer', 'InternalError', 'NoAgentAddress'),
      503: errorResponse(
        'TooManyAgentRequests: this instance waits for too many legacy agents',
        'TooManyAgentRequests',
      ),
    },
  },
  SetRecoveryConfig: {
    method: 'POST',
    path: '/servers/:server_uuid/recovery-config',
    summary:
      'Has the agent stage, or then activate, the configuration by which the encrypted zpool of the server can be recovered',
    tag: 'servers',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      ...underTicket,
      action: anyText('`stage` or `activate`'),
      recovery_uuid: anyText('Uuid of the configuration'),
      pivtoken: anyText('The token of the server'),
      template: anyText('Required to stage'),
      token: anyText('Required to stage'),
    }),
    lenient: true,
    preconditions: ['server', 'running'],
    responses: {
      200: { description: 'The task was accepted', schema: taskId, example: taskIdExample },
      ...refusals,
      412: errorResponse(
        'A parameter is missing or wrong, the agent is too old, the zpool is not encrypted, the configuration is active already, or it is not staged',
        'PreconditionFailed',
      ),
    },
  },
  PauseAgent: agentContract('pause', 'Has the agent take no further tasks but resume'),
  ResumeAgent: agentContract('resume', 'Has the agent take tasks again'),
});

function agentContract<const Verb extends 'pause' | 'resume'>(verb: Verb, summary: string) {
  return {
    method: 'POST',
    path: `/servers/:server_uuid/cn-agent/${verb}`,
    summary,
    tag: 'servers',
    origin: 'reference',
    params: z.object({ ...serverUuid, ...underTicket }),
    lenient: true,
    preconditions: ['server', 'running'],
    responses: { 204: { description: 'Done' }, ...legacyFailures },
  } as const;
}
