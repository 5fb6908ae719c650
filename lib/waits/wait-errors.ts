/** Why a wait, whatever for, cannot begin or go on here. */
import { CnapiError } from '../errors.ts';

/** This instance holds as many waits and event streams as it may. */
export class TooManyWaitersError extends CnapiError {
  constructor(limit: number) {
    super('TooManyWaiters', 503, `This instance already holds ${limit} waits; try again, or another instance`, {
      retryAfterSeconds: 1,
    });
  }
}

/** The instance stops while a wait was on; what was waited for goes on. */
export class WaitStoppedError extends CnapiError {
  constructor(what: string, id: string) {
    super('ServiceUnavailable', 503, `This instance is stopping; wait for ${what} ${id} on another one`, {
      retryAfterSeconds: 1,
    });
  }
}
