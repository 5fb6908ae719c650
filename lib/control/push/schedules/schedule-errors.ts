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

/** The schedule starts no job while the last one has not ended. */
export class PushScheduleBusyError extends CnapiError {
  constructor(id: string, { overlap, jobId }: { overlap: string; jobId: string | null }) {
    super(
      'PushScheduleBusy',
      409,
      `Push schedule ${id} has the overlap policy ${overlap}, and its last job ${jobId} has not ended: wait for its end, abort it, or change the policy to allow`,
    );
  }
}

/** Nothing was changed or started. */
export class PushScheduleConflictError extends CnapiError {
  constructor(id: string) {
    super(
      'PushScheduleConflict',
      409,
      `Push schedule ${id} was changed by another request at the same moment; try again`,
    );
  }
}

/** Time does not help, as it does for TooManyPushJobsError: so this is a conflict. */
export class TooManyPushSchedulesError extends CnapiError {
  constructor(limit: number) {
    super('TooManyPushSchedules', 409, `There are ${limit} push schedules already; delete some that are not needed`);
  }
}
