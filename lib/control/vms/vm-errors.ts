/** Errors of the routes of VMs, with Triton's codes and texts where there are any. */
import { CnapiError, type FieldError, InvalidParametersError } from '../../platform/errors.ts';
import { isJsonObject } from '../../protocol/json/bounded-json.ts';
import { TaskRunError } from '../tasks/requests/run-task.ts';
import { VmNotFoundError } from './vm-registry.ts';

/** The agent of the server cannot do this. */
export class NotSupportedError extends CnapiError {
  constructor(what: string, serverUuid: string) {
    super('NotSupported', 501, `${what} is not supported by the agent of server ${serverUuid}`);
  }
}

/** Triton answers this one with 500. */
class StartUpdateError extends CnapiError {
  constructor(action: 'start' | 'reboot', names: readonly string[]) {
    const message = `Vm.${action} update param only allows set_internal_metadata, received: [${names.join(', ')}]`;
    super('InvalidArgument', 500, message);
  }
}

export class InvalidVersionError extends CnapiError {
  constructor(serverUuid: string) {
    const message = `The sysinfo of server ${serverUuid} has no SDC Version; its platform cannot update the NICs of VMs`;
    super('InvalidVersion', 400, message);
  }
}

/** The errors of `docker-copy` that Triton's CNAPI answers, with their statuses. */
const COPY_STATUSES: Readonly<Record<string, number>> = {
  FileNotFound: 404,
  PathNotDirectory: 400,
  VmNotRunning: 409,
  DockerCopyStoppedContainerNoPlatformSupport: 409,
};

/** What the caller of `docker-copy` gets for this failure; undefined for one that Triton's clients do not know. */
export function copyError(code: string, message: string, cause?: unknown): CnapiError | undefined {
  const status = COPY_STATUSES[code];
  return status === undefined ? undefined : new CnapiError(code, status, message, { cause });
}

/** @throws StartUpdateError */
export function checkStartUpdate(action: 'start' | 'reboot', update: unknown): void {
  const names = isJsonObject(update) ? Object.keys(update) : [];
  if (names.some((name) => name !== 'set_internal_metadata')) throw new StartUpdateError(action, names.slice(0, 20));
}

/** @throws InvalidParametersError with Triton's messages */
export function checkMigrationTask({ action, record }: Readonly<Record<string, unknown>>): void {
  const errors: FieldError[] = [];
  if (typeof action !== 'string')
    errors.push({ field: 'migrationTask.action', code: 'Invalid', message: 'value was not a string' });
  if (!isJsonObject(record))
    errors.push({ field: 'migrationTask.record', code: 'Invalid', message: 'value is not an object.' });
  if (errors.length > 0) throw new InvalidParametersError(500, errors);
}

/** What the caller gets for the failure of a task about a VM. */
export function explainFailure(error: unknown, { task, uuid }: { task: string; uuid: string }): never {
  if (!(error instanceof TaskRunError)) throw error;
  const { taskCode = '', message } = error;
  if (taskCode === 'VmNotFound') throw new VmNotFoundError(uuid);
  if (taskCode === 'NoContainers') throw new CnapiError('NotSupported', 501, message, { cause: error });
  if (task === 'docker_copy') throw copyError(taskCode, message, error) ?? error;
  if (task === 'docker_stats' && message.startsWith('ENOENT,')) throw new VmNotFoundError(uuid);
  throw error;
}
