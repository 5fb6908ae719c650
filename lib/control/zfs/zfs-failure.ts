/**
 * What the caller of a route of ZFS gets for the failure of its task. Used by routes/zfs-routes.ts.
 */
import { CnapiError } from '../../platform/errors.ts';
import { TaskRunError } from '../tasks/requests/run-task.ts';

/** The agent has no tasks of ZFS. */
class NoZfsError extends CnapiError {
  constructor(serverUuid: string, cause: unknown) {
    const message = `Server ${serverUuid} has no ZFS: its agent found no programs zfs and zpool when it started`;
    super('NotSupported', 501, message, { cause });
  }
}

class DatasetNotChangeableError extends CnapiError {
  constructor(message: string, cause: unknown) {
    super('DatasetNotChangeable', 409, message, { cause });
  }
}

/** `text` is what Triton's CNAPI puts before the message of the task. */
export function explainZfsFailure(error: unknown, { text, serverUuid }: { text: string; serverUuid: string }): never {
  const code = error instanceof TaskRunError ? error.taskCode : error instanceof CnapiError ? error.code : undefined;
  if (code === 'UnknownTask') throw new NoZfsError(serverUuid, error);
  if (!(error instanceof TaskRunError)) throw error;
  if (code === 'DatasetNotChangeable') throw new DatasetNotChangeableError(error.message, error);
  throw new TaskRunError(`${text}${error.message}`, code);
}
