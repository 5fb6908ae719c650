/** Refusals of requests about documents of any noun. */
import { CnapiError } from '../../platform/errors.ts';

/** Time does not help, so this is a conflict. `plural`: of what there are too many. */
export class TooManyDocumentsError extends CnapiError {
  constructor(plural: string, maximum: number) {
    super('TooManyDocuments', 409, `There are ${maximum} ${plural} already; delete some that are not needed`);
  }
}
