/** Errors of waits of any kind that cannot begin or continue on this instance. */
import { CnapiError } from '../errors.ts';

/** This instance holds the maximum number of waits and event streams. */
export class TooManyWaitersError extends CnapiError {
  constructor(limit: number) {
    super('TooManyWaiters', 503, `This instance already holds ${limit} waits; try again, or another instance`, {
      retryAfterSeconds: 1,
    });
  }
}

/** The instance stops during the wait. The awaited object is not affected. */
export class WaitStoppedError extends CnapiError {
  constructor(what: string, id: string) {
    super('ServiceUnavailable', 503, `This instance is stopping; wait for ${what} ${id} at another instance`, {
      retryAfterSeconds: 1,
    });
  }
}
