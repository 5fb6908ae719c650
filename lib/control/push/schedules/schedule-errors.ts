/** Errors of schedules that a caller can act on. */
import { CnapiError } from '../../../platform/errors.ts';

/** The schedule does not exist, or was deleted. */
export class PushScheduleNotFoundError extends CnapiError {
  constructor(id: string) {
    super('ResourceNotFound', 404, `There is no push schedule ${id}`);
  }
}

export class PushScheduleEndedError extends CnapiError {
  constructor(id: string) {
    super('PushScheduleEnded', 409, `Push schedule ${id} has ended; create another one`);
  }
}

export class TooManySchedulesError extends CnapiError {
  constructor(limit: number) {
    super('TooManySchedules', 409, `There are ${limit} push schedules already; delete some that are not needed`);
  }
}
