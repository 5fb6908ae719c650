/** Errors of push jobs that a caller can act on. */
import { CnapiError } from '../../platform/errors.ts';

/** The Idempotency-Key was already used with another request. */
export class PushJobKeyConflictError extends CnapiError {
  constructor(id: string, key: string) {
    super(
      'IdempotencyConflict',
      409,
      `Idempotency key '${key}' was used for push job ${id} with another body; use a new key for a new push job`,
    );
  }
}

/** Another request with this Idempotency-Key came first, and its job was deleted meanwhile. */
export class PushJobKeyLostError extends CnapiError {
  constructor() {
    super(
      'IdempotencyKeyLost',
      503,
      'Nothing was created: the idempotency key was used by a push job that is deleted; try again',
      {
        retryAfterSeconds: 1,
      },
    );
  }
}

/** There are as many jobs that have not ended as there may be. */
export class TooManyPushJobsError extends CnapiError {
  constructor({ inAll, ofOrganization }: { inAll: number; ofOrganization: number }) {
    const limit = `at most ${inAll} push jobs, and ${ofOrganization} of one organization, may be unfinished`;
    super('TooManyPushJobs', 503, `Nothing was created: ${limit}; try again when some have ended`, {
      retryAfterSeconds: 5,
    });
  }
}

/** The followers of this instance would remember more nodes than they may (followed-nodes.ts). */
export class TooManyFollowedNodesError extends CnapiError {
  constructor() {
    const reason = 'Callers already follow as many nodes of push jobs at this instance as they may';
    super('TooManyFollowedNodes', 503, `${reason}; try again, or another instance`, { retryAfterSeconds: 1 });
  }
}

/** The job does not exist, or was deleted. */
export class PushJobNotFoundError extends CnapiError {
  constructor(id: string) {
    super('ResourceNotFound', 404, `There is no push job ${id}`);
  }
}

export class PushJobEndedError extends CnapiError {
  constructor(id: string) {
    super('PushJobEnded', 409, `Push job ${id} has ended already`);
  }
}

/** The job does not take this change in its state. */
export class PushJobNotChangeableError extends CnapiError {
  constructor(id: string, reason: string) {
    super('PushJobNotChangeable', 409, `Push job ${id} ${reason}; nothing was changed`);
  }
}

export class PushJobNotEndedError extends CnapiError {
  constructor(id: string) {
    super('PushJobNotEnded', 409, `Push job ${id} has not ended; abort it first`);
  }
}
