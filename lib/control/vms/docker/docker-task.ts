/**
 * What the routes of Docker's clients have in common, for servers with an agent of this project: a
 * task whose stream ends at a TCP port of this instance (docs/design/streams.md).
 */

import { CnapiError } from '../../../platform/errors.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import type { InstanceAddress } from '../../../protocol/link/frames.ts';
import type { StreamTaskName } from '../../../protocol/task-name.ts';
import { callerKey } from '../../access/token.ts';
import type { RequestContext } from '../../http/route.ts';
import { InstanceDrainingError } from '../../request-errors.ts';
import type { CallerStreams } from '../../streams/caller-streams.ts';
import { placeOf } from '../../streams/stream-place.ts';
import { createRequestedTask } from '../../tasks/requests/requested-task.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import { queryVm } from '../vm-query.ts';
import { type RunningNeed, VmNotRunningError } from './docker-errors.ts';
import { DockerPort, listenForCaller } from './docker-port.ts';
import type { PortCodec } from './port-codec.ts';

export interface DockerDeps {
  clock: Clock;
  tasks: Pick<Tasks, 'create' | 'wait' | 'follow'>;
  streams: Pick<CallerStreams, 'add'>;
  /** Where this instance listens. */
  host: string;
  /** The instances to which agents may connect. */
  addresses(): readonly InstanceAddress[];
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

export interface DockerParams {
  server_uuid: string;
  vm_uuid: string;
  ticket_uuid?: string | undefined;
}

export type DockerContext = RequestContext<DockerParams>;

/** A task of the agent, without the VM and the stream. */
interface DockerTask {
  task: StreamTaskName;
  params: Record<string, unknown>;
}

interface PortTask extends DockerTask {
  hasInput: boolean;
  codec: PortCodec;
}

/** A task that runs, and the port at which its caller may connect. */
export interface OpenPort {
  id: string;
  host: string;
  port: number;
  /** Closes the port, and ends the task's work. */
  cancel(): void;
}

/** Refused with a token: the port cannot check one. */
class NoPortError extends CnapiError {
  constructor(route: string, instead: string) {
    const message = `${route} answers a TCP port that takes no token, so only callers in trustedNetworks can use it; ${instead}`;
    super('NotSupported', 501, message);
  }
}

/**
 * @throws NoPortError for a caller with a token; `instead`: what such a caller can do, as a
 * sentence
 */
export function checkHasNoToken({ actor }: DockerContext, route: string, instead: string): void {
  if (actor.tokenUuid !== undefined || actor.principal !== undefined) throw new NoPortError(route, instead);
}

/** Returns the state of the VM as its agent knows it. @throws VmNotFoundError */
export async function readVmState(deps: DockerDeps, context: DockerContext): Promise<unknown> {
  const { server_uuid, vm_uuid: uuid } = context.params;
  const params = { server_uuid, uuid };
  return (await queryVm(deps, context, { task: 'machine_load', seconds: 60, params, precedesChange: true })).state;
}

/** @throws VmNotFoundError, VmNotRunningError */
export async function checkVmRunning(deps: DockerDeps, context: DockerContext, need: RunningNeed): Promise<void> {
  const state = await readVmState(deps, context);
  if (state !== 'running') throw new VmNotRunningError(context.params.vm_uuid, state, need);
}

/**
 * @throws CnapiError if there are too many streams, or the task is refused; then nothing listens
 */
export async function openPort(
  deps: DockerDeps,
  context: DockerContext,
  { task, params, hasInput, codec }: PortTask,
): Promise<OpenPort> {
  const { name, port, cancel } = await addPort(deps, context, { hasInput, codec });
  try {
    const stream = placeOf(name, deps.addresses());
    if (stream === undefined) throw new InstanceDrainingError();
    const id = await createDockerTask(deps, context, { task, params: { ...params, stream } });
    return { id, host: stream.host, port, cancel };
  } catch (error) {
    cancel();
    throw error;
  }
}

/** Listens for the caller of a new stream. */
async function addPort(
  { streams, clock, host }: DockerDeps,
  { params, actor, source: address }: DockerContext,
  options: Pick<PortTask, 'hasInput' | 'codec'>,
): Promise<{ name: string; port: number; cancel(): void }> {
  const { server, port } = await listenForCaller(host);
  try {
    const owner = { serverUuid: params.server_uuid, owner: callerKey(actor, address) };
    const stream = streams.add((events) => new DockerPort(server, { clock, address, ...options }, events), owner);
    return { ...stream, port };
  } catch (error) {
    server.close();
    throw error;
  }
}

/** @returns its id */
export function createDockerTask(
  { tasks }: Pick<DockerDeps, 'tasks'>,
  context: DockerContext,
  { task, params }: DockerTask,
): Promise<string> {
  const uuid = context.params.vm_uuid;
  return createRequestedTask(context, tasks, {
    name: task,
    params: { ...params, uuid },
    timeoutMs: MAX_TASK_TIMEOUT_MS,
  });
}
