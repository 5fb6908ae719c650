/** Errors of the routes of VMs, with Triton's codes and texts where there are any. */
import { CnapiError, type FieldError, InvalidParametersError } from '../../platform/errors.ts';
import { isJsonObject } from '../../protocol/json/bounded-json.ts';

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
