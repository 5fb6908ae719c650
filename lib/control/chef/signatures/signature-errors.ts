/**
 * Refusals of signed requests, with the statuses and texts of Chef (chef-server and pushy). Where
 * Chef uses one text for several causes, ours appends the cause.
 */
import { CnapiError } from '../../../platform/errors.ts';
import { MAX_SIGNATURES } from './signature-store.ts';

/** Answers 401 with how to sign a request. Chef names two of the versions that it understands. */
const CHEF_CHALLENGE = 'X-Ops-Sign version="1.0" version="1.1"';

/** 400: headers are missing, or the version is unknown. */
export class UnsignedRequestError extends CnapiError {
  constructor(message: string) {
    super('BadSignatureHeaders', 400, message);
  }
}

/** 401: wrong signer, timestamp out of range, or replayed. */
export class NotAuthenticatedError extends CnapiError {
  constructor(message: string) {
    super('Unauthorized', 401, message, { challenge: CHEF_CHALLENGE });
  }
}

/** 429: each signed change is remembered for an hour. */
export class TooManyChangesError extends CnapiError {
  constructor(name: string) {
    super('TooManyRequests', 429, `'${name}' has sent ${MAX_SIGNATURES} changes within an hour; try again later`, {
      retryAfterSeconds: 60,
    });
  }
}

/** 403: a valid user of other organizations. */
export class NotAssociatedError extends CnapiError {
  constructor(name: string, organization: string) {
    super('Forbidden', 403, `'${name}' is not associated with organization '${organization}'`);
  }
}
