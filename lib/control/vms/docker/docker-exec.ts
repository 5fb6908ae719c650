/** `docker-exec` for servers with an agent of this project. */
import { CnapiError } from '../../../platform/errors.ts';
import { isJsonObject } from '../../../protocol/json/bounded-json.ts';
import { NotSupportedError } from '../vm-errors.ts';
import { type DockerExec, dockerExecOf, unsupportedPart } from './docker-command.ts';
import { DockerLines } from './docker-lines.ts';
import {
  checkHasNoToken,
  checkVmRunning,
  createDockerTask,
  type DockerContext,
  type DockerDeps,
  type DockerParams,
  openPort,
  readVmState,
} from './docker-task.ts';

type ExecContext = DockerContext & { params: DockerParams & { command: Readonly<Record<string, unknown>> } };

/** How long a detached program may take to start. Afterwards its task says what became of it. */
const STARTS_WITHIN_MS = 30_000;

/** A server runs only so many programs to which nobody is connected. */
class TooManyProgramsError extends CnapiError {
  constructor(message: string) {
    super('TooManyPrograms', 429, message);
  }
}

/** Answers where the caller can connect within 30 seconds; nothing if the command is detached. */
export async function dockerExec(deps: DockerDeps, context: ExecContext): Promise<{ host?: string; port?: number }> {
  const { server_uuid: serverUuid, command } = context.params;
  const unsupported = unsupportedPart(command);
  if (unsupported !== undefined) throw new NotSupportedError(`docker-exec with ${unsupported}`, serverUuid);
  const exec = dockerExecOf(command);
  const { task, params, isDetached, isTty, hasInput, hasExitCode } = exec;
  if (!isDetached) checkHasNoToken(context, 'docker-exec', 'run the program with `cnapi vm exec`');
  // The log of a VM outlives its program.
  if (hasExitCode) await checkVmRunning(deps, context, 'exec');
  else await readVmState(deps, context);
  if (isDetached) {
    await startDetached(deps, context, exec);
    return {};
  }
  const codec = new DockerLines({ isTty, hasExitCode });
  const { host, port } = await openPort(deps, context, { task, params, hasInput, codec });
  return { host, port };
}

/** Returns when it has started, or ended; or after a moment. @throws TooManyProgramsError */
async function startDetached(deps: DockerDeps, context: ExecContext, { task, params }: DockerExec): Promise<void> {
  const id = await createDockerTask(deps, context, { task, params });
  const late = new AbortController();
  const timer = deps.clock.after(STARTS_WITHIN_MS, () => late.abort());
  const endSignal = AbortSignal.any([deps.instanceLeaving, late.signal]);
  try {
    for await (const { name, data } of deps.tasks.follow(id, 0, { signal: context.signal, endSignal })) {
      if (name === 'started') return;
      const error = name === 'end' && isJsonObject(data.error) ? data.error : {};
      if (error.code === 'TooManyPrograms') throw new TooManyProgramsError(String(error.message));
    }
  } finally {
    timer.cancel();
  }
}
