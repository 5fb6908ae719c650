/** Why events cannot be followed from where, or here. */
import { CnapiError } from '../errors.ts';

/** No event of this log has that id. */
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

/** This instance has as many followers of events as it may. */
export class TooManyFollowersError extends CnapiError {
  constructor(limit: number) {
    super('TooManyFollowers', 503, `This instance already has ${limit} followers of events; try another one`, {
      retryAfterSeconds: 1,
    });
  }
}

/** This instance leaves and has told its followers so. */
export class InstanceLeavingError extends CnapiError {
  constructor() {
    super('InstanceDraining', 503, 'This instance is leaving; follow events on another one', { retryAfterSeconds: 1 });
  }
}
