/** Errors of requests about instances. */
import { CnapiError } from '../../../platform/errors.ts';

export class InstanceNotFoundError extends CnapiError {
  constructor(cnapiUuid: string) {
    super('ResourceNotFound', 404, `No instance ${cnapiUuid} is live; GET /instances lists those that are`);
  }
}

/** If it drained, no instance would remain to act for its agents or to answer requests. */
export class LastInstanceError extends CnapiError {
  constructor(cnapiUuid: string) {
    super(
      'LastInstance',
      409,
      `Instance ${cnapiUuid} is the last one that stays; start another one first, or end it with SIGTERM`,
    );
  }
}
