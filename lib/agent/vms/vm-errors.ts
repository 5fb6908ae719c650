/** Errors that the callers of VMs can act on. A task ends with the code and the message. */
import { CnapiError, type FieldError } from '../../platform/errors.ts';
import type { VmErrorCode } from '../../protocol/vms.ts';

const STATUS: Partial<Record<VmErrorCode, number>> = {
  VmNotFound: 404,
  ImageNotFound: 404,
  SnapshotNotFound: 404,
  VmFailed: 500,
};

export class VmError extends CnapiError {
  constructor(code: VmErrorCode, message: string, cause?: unknown) {
    super(code, STATUS[code] ?? 409, message, { cause });
  }
}

/** The parameters are invalid; the message names each wrong field. */
export class InvalidVmError extends CnapiError {
  constructor(errors: FieldError[]) {
    const sentences = errors.map(({ field, message }) => `${field} ${message}`).join('. ');
    super('InvalidParameters', 400, sentences, { errors });
  }
}

export const vmNotFound = (uuid: string) => new VmError('VmNotFound', `There is no VM ${uuid} on this server`);

/** The VM cannot do this in its state. */
export function vmStateError(uuid: string, code: VmErrorCode, reason?: string): VmError {
  const because = reason === undefined ? '' : ` (${reason})`;
  return new VmError(code, `VM ${uuid} ${SENTENCES[code] ?? 'cannot do this now'}${because}`);
}

const SENTENCES: Partial<Record<VmErrorCode, string>> = {
  VmNotRunning: 'does not run; start it first',
  VmAlreadyRunning: 'is running; stop it first',
  VmIsBusy: 'is busy with another action; try again later',
  VmHasFailed: 'has failed; reprovision or destroy it',
};
