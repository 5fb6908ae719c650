/** Errors of the routes for Docker's clients, with Triton's codes where there are any. */

import { CnapiError } from '../../../platform/errors.ts';
import type { LegacyTaskName, TaskName } from '../../../protocol/task-name.ts';
import { TaskRunError } from '../../tasks/requests/run-task.ts';
import { VmNotFoundError } from '../vm-registry.ts';

const STOPPED_COPY = 'DockerCopyStoppedContainerNoPlatformSupport';

/** The errors of `docker-copy` that Triton's CNAPI answers, with their statuses. */
const COPY_STATUSES: Readonly<Record<string, number>> = {
  FileNotFound: 404,
  PathNotDirectory: 400,
  VmNotRunning: 409,
  [STOPPED_COPY]: 409,
};

/** What a VM must be running for. */
const NEEDS = {
  exec: { code: 'VmNotRunning', rule: 'programs can be run in a VM that is running' },
  stats: { code: 'VmNotRunning', rule: 'only one that is running has statistics' },
  copy: { code: STOPPED_COPY, rule: 'files can be copied from or to a VM that is running' },
} as const;

export type RunningNeed = keyof typeof NEEDS;

export class VmNotRunningError extends CnapiError {
  constructor(uuid: string, state: unknown, need: RunningNeed) {
    const { code, rule } = NEEDS[need];
    super(code, 409, `VM ${uuid} is ${String(state)}; ${rule}`);
  }
}

/**
 * What the caller of `docker-copy` gets for this failure; undefined for one that Triton's clients
 * do not know.
 */
export function copyError(code: string, message: string, cause?: unknown): CnapiError | undefined {
  const status = COPY_STATUSES[code];
  return status === undefined ? undefined : new CnapiError(code, status, message, { cause });
}

/** What the caller gets for the failure of a task of Triton's agent. */
export function explainLegacyFailure(
  error: unknown,
  { task, uuid }: { task: TaskName | LegacyTaskName; uuid: string },
): never {
  if (!(error instanceof TaskRunError)) throw error;
  const { taskCode = '', message } = error;
  if (task === 'docker_copy') throw copyError(taskCode, message, error) ?? error;
  if (task === 'docker_stats' && message.startsWith('ENOENT,')) throw new VmNotFoundError(uuid);
  throw error;
}
