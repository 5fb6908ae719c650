/**
 * Answers the routes that create tasks (lib/protocol/api/server-tasks.ts). The synchronous ones run
 * the task and wait.
 */

import { z } from 'zod';
import { definedFields } from '../../../platform/defined-fields.ts';
import { invalidParameter } from '../../../platform/errors.ts';
import { commandResult, HISTORY_PAGE, serverTaskContracts } from '../../../protocol/api/server-tasks.ts';
import { reasonNotStorable } from '../../../protocol/json/storable.ts';
import { PUSH_TASK } from '../../../protocol/push.ts';
import { RECOVERY_TASK } from '../../../protocol/recovery.ts';
import { STREAM_TASKS } from '../../../protocol/streams/stream.ts';
import type { CallerTaskName } from '../../../protocol/task-name.ts';
import { answerRows, ROW_STREAM_BYTES } from '../../http/answer/row-stream.ts';
import { idempotencyKey } from '../../http/idempotency-key.ts';
import { accepted, bind, empty, ok, type Route, recordedInCommit } from '../../http/route.ts';
import type { LegacyAgentApi } from '../../legacy/legacy-agent-api.ts';
import { InvalidArgumentError } from '../../request-errors.ts';
import { ServerNotRunningError } from '../../servers/server-errors.ts';
import { CORE_PARTS } from '../../servers/server-store.ts';
import type { Servers } from '../../servers/servers.ts';
import { buildTaskRequest, createRequestedTask } from '../requests/requested-task.ts';
import { type RunContext, runTask, TaskRunError } from '../requests/run-task.ts';
import type { ServerTaskCursor } from '../store/task-store.ts';
import type { Tasks } from '../tasks.ts';
import { checkRecoverable, parseRecoveryRequest } from './recovery-config.ts';
import { toLegacyHistoryEntry, toTaskHistoryEntry } from './task-view.ts';

interface ServerTaskRouteDeps {
  tasks: Pick<Tasks, 'create' | 'findByIdempotencyKey' | 'wait' | 'history'>;
  servers: Pick<Servers, 'recordSysinfo' | 'sysinfoParts' | 'get'>;
  legacyAgentApi: Pick<LegacyAgentApi, 'has' | 'history' | 'setPaused'>;
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

/** Lacks all fields if the answer of an agent of Triton was too large to keep. */
const keptCommandResult = commandResult.partial();

const sysinfoResult = z.object({
  sysinfo: z.record(z.string(), z.unknown()).superRefine((sysinfo, context) => {
    const reason = reasonNotStorable(sysinfo);
    if (reason !== undefined) context.addIssue(`it ${reason}`);
  }),
});

export function serverTaskRoutes(deps: ServerTaskRouteDeps): Route[] {
  const { tasks, servers, legacyAgentApi } = deps;
  return bind(
    serverTaskContracts,
    {
      CreateTask: recordedInCommit(async (context) => {
        const { params, header, server } = context;
        const task = {
          name: parseTaskName(params.task),
          params: params.params ?? {},
          ...definedFields({
            timeoutMs: params.timeout_ms,
            idempotent: params.idempotent,
            idempotencyKey: idempotencyKey(header),
          }),
        };
        const isRunning = server?.isRunning === true;
        // A request repeated because its answer was lost is answered even if its server has gone
        // meanwhile.
        const earlier = isRunning ? undefined : await tasks.findByIdempotencyKey(buildTaskRequest(context, task));
        if (earlier !== undefined) return accepted({ id: earlier });
        if (!isRunning) throw new ServerNotRunningError(params.server_uuid, server?.status ?? 'unknown');
        return accepted({ id: await createRequestedTask(context, tasks, task) });
      }),
      NopTask: recordedInCommit(async (context) => {
        const { sleep, error } = context.params;
        const params = definedFields({ sleep, error });
        return ok({ id: await createRequestedTask(context, tasks, { name: 'nop', params }) });
      }),
      CommandExecute: recordedInCommit(async (context) => {
        const { script, args, env, timeout, json, secret_params } = context.params;
        const options = {
          ...definedFields({ args, env, timeout }),
        };
        const params = { script, ...options, ...definedFields({ secret_params }) };
        const result = await runTask(deps, context, { name: 'command_execute', params, result: keptCommandResult });
        return executed(result, json === true);
      }),
      RefreshSysinfo: recordedInCommit(async (context) => {
        const task = { name: 'server_sysinfo' as const, params: {}, result: sysinfoResult };
        await servers.recordSysinfo(context.params.server_uuid, (await runTask(deps, context, task)).sysinfo);
        return empty(200);
      }),
      async TaskHistory({ params, server, requestId, actor }) {
        const { server_uuid, limit = HISTORY_PAGE } = params;
        // A legacy agent may also have tasks of a legacy CNAPI, which are in no table of this one.
        if (server?.isRunning && (await legacyAgentApi.has(server_uuid))) {
          const last = await lastOf(legacyAgentApi.history(server_uuid, requestId), limit);
          return ok(last.map((entry) => toLegacyHistoryEntry(entry, actor)));
        }
        return answerRows<unknown, ServerTaskCursor>({
          limit,
          async read(after, size) {
            const { rows, next } = await tasks.history(server_uuid, size, after);
            return { rows: rows.map((row) => toTaskHistoryEntry(row, actor)), next };
          },
        });
      },
      SetRecoveryConfig: recordedInCommit(async (context) => {
        const { server_uuid } = context.params;
        const params = parseRecoveryRequest(context.params);
        const [found, sysinfo] = await Promise.all([
          servers.get(server_uuid, { ...CORE_PARTS, agents: true }),
          servers.sysinfoParts(server_uuid, ['Zpool Encrypted', 'Zpool Recovery']),
        ]);
        checkRecoverable(params, { agents: found?.server.agents ?? [], sysinfo: sysinfo ?? {} });
        return ok({ id: await createRequestedTask(context, tasks, { name: RECOVERY_TASK, params, idempotent: true }) });
      }),
      PauseAgent: (context) => setPaused(deps, context, 'pause'),
      ResumeAgent: (context) => setPaused(deps, context, 'resume'),
    },
    { TaskHistory: { answerBytes: ROW_STREAM_BYTES } },
  );
}

/**
 * Tasks that other routes create. With the first a caller could start a job before its quorum; the
 * second has secrets, which its route hides; the others name an address to which the agent sends
 * its token.
 */
const RESERVED_TASKS: Readonly<Record<string, string>> = {
  [PUSH_TASK]: 'is created by push jobs only; POST /push-jobs',
  [RECOVERY_TASK]: 'has a route of its own; POST /servers/:server_uuid/recovery-config',
  ...Object.fromEntries(
    Object.entries(STREAM_TASKS).map(([name, route]) => [name, `has a route of its own; ${route}`]),
  ),
};

/** @throws InvalidParametersError if another route creates this task */
function parseTaskName(name: string): CallerTaskName {
  const reason = Object.hasOwn(RESERVED_TASKS, name) ? RESERVED_TASKS[name] : undefined;
  if (reason !== undefined) throw invalidParameter('task', `${name} ${reason}`);
  return name as CallerTaskName;
}

/** A legacy agent lists its newest task last. */
async function lastOf<Item>(list: Promise<readonly Item[]>, limit: number): Promise<Item[]> {
  return (await list).toReversed().slice(0, limit);
}

async function setPaused(deps: ServerTaskRouteDeps, context: RunContext, verb: 'pause' | 'resume') {
  const { params, requestId } = context;
  const { legacyAgentApi } = deps;
  if (!(await legacyAgentApi.has(params.server_uuid))) {
    await runTask(deps, context, { name: `agent_${verb}`, params: {}, result: z.unknown() });
    return empty(204);
  }
  if (params.ticket_uuid !== undefined)
    throw new InvalidArgumentError(`To ${verb} a legacy agent is not a task; it cannot be put under a ticket`);
  await legacyAgentApi.setPaused(params.server_uuid, requestId, verb === 'pause');
  return empty(204);
}

/**
 * The answer of Triton's CNAPI: the whole result if `json` is set, otherwise only stdout. A failed
 * command is then an error.
 */
function executed({ exitCode, stdout, stderr }: z.output<typeof keptCommandResult>, json: boolean) {
  if (json) return ok({ exitCode: exitCode ?? null, stderr: stderr ?? '', stdout: stdout ?? '' });
  if (exitCode !== 0) throw new TaskRunError('Error executing on remote system');
  return ok((stdout ?? '').trim());
}
