/** Errors of requests to follow events from a position, or on this instance. */
import { CnapiError } from '../../platform/errors.ts';

/** This log has no event with that id. */
export class UnknownEventError extends CnapiError {
  constructor(position: string) {
    super(
      'InvalidArgument',
      409,
      `${position} is not the id of an event in this log (it may be of another zone, or of before the database was set ` +
        'back); begin without one, or with 0 for all that is kept',
    );
  }
}

/** This instance has the maximum number of followers of events. */
export class TooManyFollowersError extends CnapiError {
  constructor(limit: number) {
    super('TooManyFollowers', 503, `This instance already has ${limit} followers of events; try another one`, {
      retryAfterSeconds: 1,
    });
  }
}
