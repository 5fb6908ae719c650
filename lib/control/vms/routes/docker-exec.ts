/**
 * `docker-exec` for servers with an agent of this project: a task whose stream ends at a TCP port of
 * this instance, for clients that cannot open a WebSocket (docs/design/streams.md).
 */
import { CnapiError } from '../../../platform/errors.ts';
import { optionalField } from '../../../platform/optional-field.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import type { InstanceAddress } from '../../../protocol/link/frames.ts';
import { callerKey } from '../../access/token.ts';
import type { RequestContext } from '../../http/route.ts';
import { InstanceDrainingError } from '../../request-errors.ts';
import type { CallerStreams } from '../../streams/caller-streams.ts';
import { placeOf } from '../../streams/stream-place.ts';
import { runTask } from '../../tasks/routes/run-task.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import { type DockerExec, dockerExecOf, unsupportedPart } from './docker-command.ts';
import { explainFailure, NotSupportedError } from './vm-errors.ts';

export interface DockerExecDeps {
  tasks: Pick<Tasks, 'create' | 'wait'>;
  streams: Pick<CallerStreams, 'listen'>;
  /** The instances to which agents may connect. */
  addresses(): readonly InstanceAddress[];
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

type ExecContext = RequestContext<{
  server_uuid: string;
  vm_uuid: string;
  ticket_uuid?: string | undefined;
  command: Readonly<Record<string, unknown>>;
}>;

/** Whoever connects to the port has no token, so its caller needs none either. */
class NoPortError extends CnapiError {
  constructor() {
    const message =
      'docker-exec answers a TCP port that takes no token, so only callers in trustedNetworks can use it; run the program with `cnapi vm exec`';
    super('NotSupported', 501, message);
  }
}

class VmNotRunningError extends CnapiError {
  constructor(uuid: string, state: unknown) {
    super('VmNotRunning', 409, `VM ${uuid} is ${String(state)}; programs can be run in a VM that is running`);
  }
}

/** Answers where the caller can connect within 30 seconds; nothing if the command is detached. */
export async function dockerExec(
  deps: DockerExecDeps,
  context: ExecContext,
): Promise<{ host?: string; port?: number }> {
  const { server_uuid: serverUuid, command } = context.params;
  const unsupported = unsupportedPart(command);
  if (unsupported !== undefined) throw new NotSupportedError(`docker-exec with ${unsupported}`, serverUuid);
  const exec = dockerExecOf(command);
  const { tokenUuid, principal } = context.actor;
  if (!exec.isDetached && (tokenUuid !== undefined || principal !== undefined)) throw new NoPortError();
  await requireVm(deps, context, exec);
  if (!exec.isDetached) return withPort(deps, context, exec);
  await create(deps, context, exec);
  return {};
}

/** @throws VmNotFoundError, VmNotRunningError */
async function requireVm(deps: DockerExecDeps, context: ExecContext, { hasExitCode }: DockerExec): Promise<void> {
  const { server_uuid, vm_uuid: uuid } = context.params;
  const task = 'machine_load';
  const about = { name: task, seconds: 60, isRead: true, params: { server_uuid, uuid } };
  const vm = await runTask(deps, context, about).catch((error: unknown) => explainFailure(error, { task, uuid }));
  // The log of a VM outlives its program.
  if (hasExitCode && vm.state !== 'running') throw new VmNotRunningError(uuid, vm.state);
}

async function withPort(deps: DockerExecDeps, context: ExecContext, exec: DockerExec) {
  const { isTty, hasInput, hasExitCode } = exec;
  const { name, port, cancel } = await deps.streams.listen({
    serverUuid: context.params.server_uuid,
    owner: callerKey(context.actor, context.source),
    address: context.source,
    isTty,
    hasInput,
    hasExitCode,
  });
  try {
    const stream = placeOf(name, deps.addresses());
    if (stream === undefined) throw new InstanceDrainingError();
    await create(deps, context, { ...exec, params: { ...exec.params, stream } });
    return { host: stream.host, port };
  } catch (error) {
    cancel();
    throw error;
  }
}

async function create(
  { tasks }: Pick<DockerExecDeps, 'tasks'>,
  { params: { server_uuid, vm_uuid: uuid, ticket_uuid }, requestId, actor, withRecord, setAuditedObject }: ExecContext,
  { task, params }: Pick<DockerExec, 'task' | 'params'>,
): Promise<void> {
  const request = {
    serverUuid: server_uuid,
    name: task,
    params: { ...params, uuid },
    requestId,
    actor: actor.name,
    timeoutMs: MAX_TASK_TIMEOUT_MS,
    ...optionalField('ticketUuid', ticket_uuid),
  };
  const { id } = await withRecord((record) => tasks.create({ ...request, record }));
  setAuditedObject(id);
}
