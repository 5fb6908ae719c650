/** A question to ZFS, or a change, that failed or is refused. */
import { CnapiError } from '../../platform/errors.ts';

/**
 * `ZfsFailed`: a program of ZFS said no, and the message is what it said. `DatasetNotChangeable`:
 * the configuration of the agent does not allow the change, or the dataset is in use.
 * `ZfsOutputTooLarge`: ask for less.
 */
type ZfsErrorCode = 'ZfsFailed' | 'DatasetNotChangeable' | 'ZfsOutputTooLarge' | 'InvalidParameters';

export class ZfsError extends CnapiError {
  constructor(code: ZfsErrorCode, message: string, cause?: unknown) {
    super(code, code === 'ZfsFailed' ? 500 : 409, message, { cause });
  }
}
