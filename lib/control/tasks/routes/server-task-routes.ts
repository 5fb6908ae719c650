/**
 * Work for one server's agent. Asynchronous routes answer with a task's id; the reference's
 * synchronous ones run the task and wait. Either way the task is durable: it continues if its
 * caller disconnects or an instance dies.
 */
import { z } from 'zod';
import { CnapiError } from '../../../platform/errors.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import { TokenEndedError } from '../../access/access-errors.ts';
import type { Task } from '../task.ts';
import type { TaskPlace } from '../task-store.ts';
import { InvalidArgumentError, ServerNotRunningError } from '../../http/http-errors.ts';
import { idempotencyKey } from '../../http/idempotency-key.ts';
import { empty, ok, type RequestContext, type Route, route } from '../../http/route.ts';
import { answerRows, ROW_STREAM_BYTES } from '../../http/row-stream.ts';
import {
  BAD_REQUEST,
  boolean,
  boundedText,
  integer,
  isUuid,
  MAX_WAIT_SECONDS,
  object,
  text,
  textArray,
  textMap,
  truthy,
  uuid,
} from '../../../protocol/api/rules.ts';
import { MAX_LIST, noServer, serverUuid } from '../../servers/routes/server-routes.ts';
import { historyFor } from './task-view.ts';

/** A synchronous route's task failed, or did not end in time: 500, with the reference's text. */
class TaskRunError extends CnapiError {
  constructor(message: string) {
    super('InternalError', 500, message);
  }
}

/**
 * A synchronous route ends its wait while its task runs. Do not retry: that would run the task
 * twice.
 */
class TaskContinuesError extends CnapiError {
  constructor(id: string) {
    const message = `This instance is stopping, task ${id} continues; wait for it at another instance, at /tasks/${id}/wait`;
    super('ServiceUnavailable', 503, message);
  }
}

const MAX_COMMAND_MS = 24 * 3_600_000;

const notRunning = {
  ...noServer,
  409: {
    description:
      'ServerNotRunning: its agent is not connected; TicketNotActive, TicketOfAnotherServer: so much for the ticket named',
  },
};
const taskId = z.object({ id: uuid() });
const taskIdExample = { id: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11' };

/**
 * For every route here that creates a task. A failure is 400, also on the reference's routes,
 * because the parameter is our own.
 */
const underTicket = {
  ticket_uuid: z
    .unknown()
    .refine((value) => isUuid(value), { message: 'value is not a UUID', params: BAD_REQUEST })
    .transform((value) => String(value).toLowerCase())
    .optional()
    .meta({ type: 'string', format: 'uuid' })
    .describe('A ticket of this server or of `default`: the task is accepted only while that is active'),
};

export const serverTaskRoutes: Route[] = [
  route({
    name: 'CreateTask',
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
        .describe("A name of the agent's catalogue"),
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
    responses: { 202: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...notRunning },
    async handler({ params, services, header, requestId, actor, server, isRunning }) {
      const request = {
        serverUuid: params.server_uuid,
        name: params.task,
        params: params.params ?? {},
        requestId,
        actor: actor.name,
        ...given('timeoutMs', params.timeout_ms),
        ...given('idempotent', params.idempotent),
        ...given('idempotencyKey', idempotencyKey(header)),
        ...given('ticketUuid', params.ticket_uuid),
      };
      // A request repeated because its answer was lost is answered even if its server has gone
      // meanwhile.
      const known = isRunning ? undefined : await services.tasks.known(request);
      if (known !== undefined) return { status: 202, body: { id: known } };
      if (!isRunning) throw new ServerNotRunningError(params.server_uuid, server?.status ?? 'unknown');
      const { id } = await services.tasks.create(request);
      return { status: 202, body: { id } };
    },
  }),
  route({
    name: 'NopTask',
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
    responses: { 200: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...notRunning },
    async handler({ params, services, requestId, actor }) {
      const { server_uuid, ticket_uuid, sleep, error } = params;
      const { id } = await services.tasks.create({
        serverUuid: server_uuid,
        name: 'nop',
        params: { ...given('sleep', sleep), ...given('error', error) },
        requestId,
        actor: actor.name,
        ...given('ticketUuid', ticket_uuid),
      });
      return ok({ id });
    },
  }),
  route({
    name: 'CommandExecute',
    method: 'POST',
    path: '/servers/:server_uuid/execute',
    summary: 'Runs a script and answers with its output: trimmed stdout, or with `json` exit code, stdout and stderr',
    lasts: 'wait',
    tag: 'tasks',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      ...underTicket,
      script: text().min(1, 'value is empty'),
      args: textArray().optional(),
      env: textMap().optional(),
      secret_params: z
        .unknown()
        .optional()
        .meta({ type: 'array', items: { type: 'string' } })
        .describe('JSON Pointers to what only the agent may see: `/env/PASSWORD`'),
      timeout: integer('timeout', 1, MAX_COMMAND_MS).optional().describe('Milliseconds'),
      json: truthy().optional(),
    }),
    lenient: true,
    preconditions: ['server', 'running'],
    responses: {
      200: {
        description: 'Executed',
        schema: z.union([
          z.string(),
          z.object({ exitCode: z.int().nullable(), stdout: z.string(), stderr: z.string() }),
        ]),
        example: { exitCode: 0, stdout: 'ok\n', stderr: '' },
      },
      ...notRunning,
    },
    async handler(context) {
      const { script, args, env, timeout, json, secret_params } = context.params;
      const options = { ...given('args', args), ...given('env', env), ...given('timeout', timeout) };
      const params = { script, ...options, ...given('secret_params', secret_params) };
      return executed(await runTask(context, 'command_execute', params), json === true);
    },
  }),
  route({
    name: 'RefreshSysinfo',
    method: 'POST',
    path: '/servers/:server_uuid/sysinfo-refresh',
    summary: 'Has the agent read its sysinfo again, and stores it',
    tag: 'servers',
    origin: 'reference',
    params: z.object({ ...serverUuid, ...underTicket }),
    preconditions: ['server', 'running'],
    responses: { 200: { description: 'Kept' }, ...notRunning },
    async handler(context) {
      const { sysinfo } = await runTask(context, 'server_sysinfo', {});
      if (typeof sysinfo !== 'object' || sysinfo === null)
        throw new TaskRunError('the agent answered without a sysinfo');
      await context.services.servers.recordSysinfo(context.params.server_uuid, sysinfo as Record<string, unknown>);
      return empty(200);
    },
  }),
  route({
    name: 'TaskHistory',
    method: 'GET',
    path: '/servers/:server_uuid/task-history',
    summary:
      "The server's tasks, newest first, from any instance; those of a legacy agent (at most 16) from the agent itself",
    tag: 'tasks',
    origin: 'reference',
    answerBytes: ROW_STREAM_BYTES,
    params: z.object({ ...serverUuid, limit: integer('limit', 1, MAX_LIST).optional() }),
    preconditions: ['server'],
    responses: {
      200: {
        description: 'OK',
        schema: z.array(z.looseObject({ id: uuid().optional(), task: z.string(), status: z.string() })),
      },
      ...noServer,
      500: { description: 'The legacy agent did not answer' },
    },
    async handler({ params, services, isRunning, requestId, actor }) {
      const { server_uuid, limit = 100 } = params;
      // A legacy agent may also have tasks of a legacy CNAPI, which are in no table of this one.
      if (isRunning && (await services.legacyAgentApi.has(server_uuid)))
        return ok(historyFor(actor, await lastOf(services.legacyAgentApi.history(server_uuid, requestId), limit)));
      return answerRows<unknown, TaskPlace>({
        limit,
        async read(after, size) {
          const { rows, next } = await services.tasks.history(server_uuid, size, after);
          return { rows: historyFor(actor, rows), next };
        },
      });
    },
  }),
  agentRoute('PauseAgent', 'pause', 'Has the agent take no further tasks but resume'),
  agentRoute('ResumeAgent', 'resume', 'Has the agent take tasks again'),
];

/** A legacy agent lists its newest task last. */
async function lastOf<Item>(list: Promise<readonly Item[]>, limit: number): Promise<Item[]> {
  return (await list).toReversed().slice(0, limit);
}

function agentRoute(name: string, verb: 'pause' | 'resume', summary: string): Route {
  return route({
    name,
    method: 'POST',
    path: `/servers/:server_uuid/cn-agent/${verb}`,
    summary,
    tag: 'servers',
    origin: 'reference',
    params: z.object({ ...serverUuid, ...underTicket }),
    lenient: true,
    preconditions: ['server', 'running'],
    responses: { 204: { description: 'Done' }, ...notRunning },
    async handler(context) {
      const { params, services, requestId } = context;
      if (!(await services.legacyAgentApi.has(params.server_uuid))) {
        await runTask(context, `agent_${verb}`, {});
        return empty(204);
      }
      if (params.ticket_uuid !== undefined)
        throw new InvalidArgumentError(`To ${verb} a legacy agent is not a task; it cannot be put under a ticket`);
      await services.legacyAgentApi.setPaused(params.server_uuid, requestId, verb === 'pause');
      return empty(204);
    },
  });
}

/**
 * Runs a task to its end and returns its result. @throws TaskRunError if it failed or did not end
 * in time, TaskContinuesError, TokenEndedError
 */
async function runTask(
  {
    params,
    services,
    requestId,
    actor,
    signal,
    concerns,
  }: RequestContext<{ server_uuid: string; ticket_uuid?: string | undefined }>,
  name: string,
  taskParams: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  const { server_uuid: serverUuid, ticket_uuid } = params;
  const about = { requestId, actor: actor.name, ...given('ticketUuid', ticket_uuid) };
  const request = { serverUuid, name, params: taskParams, ...about };
  const { id } = await services.tasks.create(request);
  concerns(id);
  const over = services.waitsOver;
  const waiting = services.tasks.wait(id, { timeoutMs: MAX_WAIT_SECONDS * 1000, signal, over });
  const task = await waiting.catch((error: unknown) => {
    if (signal.reason instanceof TokenEndedError) throw new TokenEndedError(id);
    throw signal.aborted ? new TaskContinuesError(id) : error;
  });
  if (task.status === 'active' && over.aborted) throw new TaskContinuesError(id);
  if (task.status === 'active') throw new TaskRunError(`Time-out reached waiting for ${name} request to return`);
  if (task.status === 'failure') throw new TaskRunError(failureOf(task));
  return task.history.at(-1)?.event ?? {};
}

function failureOf(task: Task): string {
  const error = task.history.find(({ name }) => name === 'error')?.event.error as { message?: unknown } | undefined;
  return typeof error?.message === 'string' ? error.message : 'no error given';
}

/**
 * As in the reference: with `json` everything; else only stdout, and a failed command is an error.
 */
function executed(result: Record<string, unknown>, json: boolean) {
  const { exitCode, stdout, stderr } = result;
  if (json) return ok({ exitCode: exitCode ?? null, stderr: stderr ?? '', stdout: stdout ?? '' });
  if (exitCode !== 0) throw new TaskRunError('Error executing on remote system');
  return ok(String(stdout ?? '').trim());
}

/** `{[name]: value}`, or an empty object if the value is undefined. */
function given<Name extends string, Value>(name: Name, value: Value | undefined): { [K in Name]?: Value } {
  return (value === undefined ? {} : { [name]: value }) as { [K in Name]?: Value };
}
