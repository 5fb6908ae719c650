/**
 * `docker-copy` for servers with an agent of this project: a program in the VM writes an archive of
 * tar to the caller's port, or reads one. What it finds at the path is in the answer.
 */

import { CnapiError } from '../../../platform/errors.ts';
import { settlesWithin } from '../../../platform/time/clock.ts';
import { untilAborted } from '../../../platform/time/until-aborted.ts';
import { VM_EXEC_TASK } from '../../../protocol/streams/stream.ts';
import { InstanceDrainingError } from '../../request-errors.ts';
import { TaskRunError } from '../../tasks/requests/run-task.ts';
import { NotSupportedError } from '../vm-errors.ts';
import { DockerArchive, NoHeadError } from './docker-archive.ts';
import { copyError } from './docker-errors.ts';
import { parseDockerCopy, readHead } from './docker-path.ts';
import {
  checkHasNoToken,
  checkVmRunning,
  type DockerContext,
  type DockerDeps,
  type DockerParams,
  type OpenPort,
  openPort,
} from './docker-task.ts';

type CopyContext = DockerContext & {
  params: DockerParams & {
    path?: string | undefined;
    mode?: string | undefined;
    payload?: Readonly<Record<string, unknown>> | undefined;
  };
};

/** The port is open for 30 seconds; the rest is the caller's. */
const HEAD_WITHIN_MS = 20_000;
const ENDS_WITHIN_MS = 1_000;

/** Answers what is at the path, and where the caller can connect within seconds. */
export async function dockerCopy(deps: DockerDeps, context: CopyContext): Promise<Record<string, unknown>> {
  const { mode, path, args } = parseDockerCopy(context.params);
  checkHasNoToken(context, 'docker-copy', 'copy with `cnapi vm cp`');
  await checkVmRunning(deps, context, 'copy');
  const codec = new DockerArchive();
  const task = { task: VM_EXEC_TASK, params: { args }, hasInput: mode === 'write', codec };
  const opened = await openPort(deps, context, task);
  try {
    const stat = readHead(await headOf(deps, context, opened, codec), path);
    if (stat === undefined) throw new TaskRunError('The program in the VM did not say what it has found');
    if ('code' in stat || mode === 'stat') {
      // Otherwise its task would fail.
      await settlesWithin(deps.clock, ENDS_WITHIN_MS, codec.ended);
      opened.cancel();
    }
    if ('code' in stat) throw refusalOf(stat, context);
    const { host, port } = opened;
    return { ...(mode !== 'stat' && { host, port }), ...(mode !== 'write' && { containerPathStat: stat }) };
  } catch (error) {
    opened.cancel();
    throw error;
  }
}

/** @throws CnapiError if it does not come in time, or the task has failed */
async function headOf(
  { clock, tasks, instanceLeaving: endSignal }: DockerDeps,
  context: CopyContext,
  { id }: OpenPort,
  { head }: DockerArchive,
): Promise<string> {
  const copyEnded = new AbortController();
  const signal = AbortSignal.any([context.signal, copyEnded.signal]);
  // A task that is refused never joins the stream.
  const failed = tasks.wait(id, { timeoutMs: HEAD_WITHIN_MS, signal, endSignal }).then(({ outcome, error }) => {
    if (outcome !== 'failure') return head;
    throw new NoHeadError({ code: String(error?.code), message: String(error?.message) });
  });
  failed.catch(() => undefined);
  try {
    const first = Promise.race([head, failed]);
    if (await settlesWithin(clock, HEAD_WITHIN_MS, untilAborted(first, context.signal))) return await first;
  } catch (error) {
    throw error instanceof NoHeadError ? refusalOf(error, context) : error;
  } finally {
    copyEnded.abort();
  }
  throw new TaskRunError('Time-out reached waiting for docker_copy request to return');
}

/** `error`: of the program in the VM, or of its task. */
function refusalOf({ code, message }: { code: string; message: string }, { params }: CopyContext): CnapiError {
  if (code === 'NoSuchProgram')
    return new NotSupportedError(`A copy of VM ${params.vm_uuid}, which has no shell,`, params.server_uuid);
  if (code === 'InstanceDraining') return new InstanceDrainingError();
  if (code === 'NotSupported') return new CnapiError('NotSupported', 501, message);
  return copyError(code, message) ?? new TaskRunError(message, code);
}
