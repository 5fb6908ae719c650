/**
 * Work for one server's agent. Asynchronous routes answer with a task's id; the synchronous ones of the reference run the
 * task and wait. Either way the task is durable: a caller that leaves, or an instance that dies, does not undo it.
 */
import { z } from 'zod';
import { TokenEndedError } from '../access/access-errors.ts';
import { CnapiError } from '../errors.ts';
import type { Task } from '../tasks/task.ts';
import { MAX_TASK_TIMEOUT_MS } from '../wire/limits.ts';
import { InvalidArgumentError, InvalidParametersError, ServerNotRunningError } from './http-errors.ts';
import { empty, ok, type RequestContext, type Route, route } from './route.ts';
import {
  BAD_REQUEST,
  boolean,
  booleanText,
  boundedText,
  integer,
  isUuid,
  MAX_WAIT_SECONDS,
  object,
  text,
  textArray,
  textMap,
  uuid,
} from './rules.ts';
import { MAX_LIST, noServer, serverUuid } from './server-routes.ts';

/** A synchronous route's task failed, or gave no end in time: 500, with the text as the reference has it. */
class TaskRunError extends CnapiError {
  constructor(message: string) {
    super('InternalError', 500, message);
  }
}

/** The caller of a synchronous route is sent away while its task runs. Not to be tried again: that would run it twice. */
class TaskGoesOnError extends CnapiError {
  constructor(id: string) {
    const message = `This instance is stopping, task ${id} goes on; wait for it on another one, at /tasks/${id}/wait`;
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

/** Of every route here that makes a task. Whose rules fail it is 400, on the reference's routes as well: it is our own. */
const underTicket = {
  ticket_uuid: z
    .unknown()
    .refine((value) => isUuid(value), { message: 'value is not a UUID', params: BAD_REQUEST })
    .transform((value) => String(value).toLowerCase())
    .optional()
    .meta({ type: 'string', format: 'uuid' })
    .describe('A ticket of this server or of `default`: the task is accepted only while that is active'),
};
const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,200}$/;

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
      params: object().optional(),
      timeout_ms: integer('timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe('How long it may run: a day at most; 3600000 when absent'),
      idempotent: boolean()
        .optional()
        .describe('May be run again when nobody can tell whether it ran; by the catalogue when absent'),
    }),
    requestHeaders: { 'Idempotency-Key': 'The same key for the same server gives the same task' },
    preconditions: ['server'],
    responses: { 202: { description: 'Accepted', schema: taskId, example: taskIdExample }, ...notRunning },
    async handler({ params, services, header, requestId, server, isRunning }) {
      const request = {
        serverUuid: params.server_uuid,
        name: params.task,
        params: params.params ?? {},
        requestId,
        ...given('timeoutMs', params.timeout_ms),
        ...given('idempotent', params.idempotent),
        ...given('idempotencyKey', idempotencyKey(header('Idempotency-Key'))),
        ...given('ticketUuid', params.ticket_uuid),
      };
      // A request repeated because its answer was lost is answered even if its server has gone meanwhile.
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
    async handler({ params, services, requestId }) {
      const { server_uuid, ticket_uuid, sleep, error } = params;
      const { id } = await services.tasks.create({
        serverUuid: server_uuid,
        name: 'nop',
        params: { ...given('sleep', sleep), ...given('error', error) },
        requestId,
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
    tag: 'tasks',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      ...underTicket,
      script: text().min(1, 'value is empty'),
      args: textArray().optional(),
      env: textMap().optional(),
      timeout: integer('timeout', 1, MAX_COMMAND_MS).optional().describe('Milliseconds'),
      json: booleanText().optional(),
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
      const { script, args, env, timeout, json } = context.params;
      const params = { script, ...given('args', args), ...given('env', env), ...given('timeout', timeout) };
      return executed(await runTask(context, 'command_execute', params), json === true);
    },
  }),
  route({
    name: 'RefreshSysinfo',
    method: 'POST',
    path: '/servers/:server_uuid/sysinfo-refresh',
    summary: 'Has the agent read its sysinfo anew, and keeps it',
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
    summary: "The server's tasks, newest first, from any instance; of an old agent what it tells itself, its last 16",
    tag: 'tasks',
    origin: 'reference',
    params: z.object({ ...serverUuid, limit: integer('limit', 1, MAX_LIST).optional() }),
    preconditions: ['server'],
    responses: {
      200: {
        description: 'OK',
        schema: z.array(z.looseObject({ id: uuid().optional(), task: z.string(), status: z.string() })),
      },
      ...noServer,
      500: { description: 'The agent is an old one and did not tell' },
    },
    async handler({ params, services, isRunning, requestId }) {
      const { server_uuid, limit = 100 } = params;
      // An old agent may have tasks of an old CNAPI beside, which only it knows of.
      if (isRunning && (await services.oldAgentCaller.has(server_uuid)))
        return ok((await services.oldAgentCaller.history(server_uuid, requestId)).slice(0, limit));
      return ok(await services.tasks.history(server_uuid, limit));
    },
  }),
  agentRoute('PauseAgent', 'pause', 'Has the agent take no further tasks but resume'),
  agentRoute('ResumeAgent', 'resume', 'Has the agent take tasks again'),
];

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
      if (!(await services.oldAgentCaller.has(params.server_uuid))) {
        await runTask(context, `agent_${verb}`, {});
        return empty(204);
      }
      if (params.ticket_uuid !== undefined)
        throw new InvalidArgumentError(`To ${verb} an old agent is no task; it cannot be put under a ticket`);
      await services.oldAgentCaller.setPaused(params.server_uuid, requestId, verb === 'pause');
      return empty(204);
    },
  });
}

/** Runs a task to its end and gives its result. @throws TaskRunError when it failed or did not end in time, TaskGoesOnError, TokenEndedError */
async function runTask(
  {
    params,
    services,
    requestId,
    signal,
    concerns,
  }: RequestContext<{ server_uuid: string; ticket_uuid?: string | undefined }>,
  name: string,
  taskParams: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  const { server_uuid: serverUuid, ticket_uuid } = params;
  const request = { serverUuid, name, params: taskParams, requestId, ...given('ticketUuid', ticket_uuid) };
  const { id } = await services.tasks.create(request);
  concerns(id);
  const over = services.waitsOver;
  const waiting = services.tasks.wait(id, { timeoutMs: MAX_WAIT_SECONDS * 1000, signal, over });
  const task = await waiting.catch((error: unknown) => {
    if (signal.reason instanceof TokenEndedError) throw new TokenEndedError(id);
    throw signal.aborted ? new TaskGoesOnError(id) : error;
  });
  if (task.status === 'active' && over.aborted) throw new TaskGoesOnError(id);
  if (task.status === 'active') throw new TaskRunError(`Time-out reached waiting for ${name} request to return`);
  if (task.status === 'failure') throw new TaskRunError(failureOf(task));
  return task.history.at(-1)?.event ?? {};
}

function failureOf(task: Task): string {
  const error = task.history.find(({ name }) => name === 'error')?.event.error as { message?: unknown } | undefined;
  return typeof error?.message === 'string' ? error.message : 'no error given';
}

/** As the reference: with `json` everything; else stdout alone, and a command that failed is an error. */
function executed(result: Record<string, unknown>, json: boolean) {
  const { exitCode, stdout, stderr } = result;
  if (json) return ok({ exitCode: exitCode ?? null, stderr: stderr ?? '', stdout: stdout ?? '' });
  if (exitCode !== 0) throw new TaskRunError('Error executing on remote system');
  return ok(String(stdout ?? '').trim());
}

function idempotencyKey(key: string | undefined): string | undefined {
  if (key === undefined || IDEMPOTENCY_KEY.test(key)) return key;
  const message = 'value was not 1 to 200 visible ASCII characters';
  throw new InvalidParametersError(400, [{ field: 'Idempotency-Key', code: 'Invalid', message }]);
}

/** `{[name]: value}`, or nothing when there is no value. */
function given<Name extends string, Value>(name: Name, value: Value | undefined): { [K in Name]?: Value } {
  return (value === undefined ? {} : { [name]: value }) as { [K in Name]?: Value };
}
