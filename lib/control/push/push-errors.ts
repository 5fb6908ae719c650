/** Errors of push jobs that a caller can act on. */
import { CnapiError } from '../../platform/errors.ts';

/** The job does not exist, or was deleted. */
export class PushJobNotFoundError extends CnapiError {
  constructor(id: string) {
    super('ResourceNotFound', 404, `There is no push job ${id}`);
  }
}

export class PushJobEndedError extends CnapiError {
  constructor(id: string) {
    super('PushJobEnded', 409, `Push job ${id} has ended already; there is nothing to abort`);
  }
}

export class PushJobNotEndedError extends CnapiError {
  constructor(id: string) {
    super('PushJobNotEnded', 409, `Push job ${id} has not ended; abort it first`);
  }
}
