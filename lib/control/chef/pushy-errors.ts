/** Refusals of requests to /pushy. `error-form.ts` gives them the form of Chef. */
import { CnapiError } from '../../platform/errors.ts';

/** A body that is not a job. Nothing was created. */
export class InvalidJobError extends CnapiError {
  /** The key that is wrong. */
  readonly field: string | undefined;
  /** What Chef's text does not say. */
  readonly detail: string | undefined;

  constructor(text: string, field?: string, detail?: string) {
    super('InvalidParameters', 400, text);
    this.field = field;
    this.detail = detail;
  }
}

export class NotAcceptableError extends CnapiError {
  constructor(contentType: string) {
    super('NotAcceptable', 406, `The answer is ${contentType}, which the Accept header does not allow`);
  }
}

export class NotJsonError extends CnapiError {
  constructor(contentType: string) {
    super('UnsupportedMediaType', 415, `Content-Type ${contentType} is not supported; send application/json`);
  }
}

export class ChefJobNotFoundError extends CnapiError {
  constructor(id: string, organization: string) {
    super('ResourceNotFound', 404, `organization '${organization}' has no push job '${id}'`);
  }
}

/** 429: the rest of the instance's followers is for other organizations. */
export class TooManyFeedFollowersError extends CnapiError {
  constructor(who: string, limit: number) {
    const message = `${who} already follows ${limit} feeds at this instance; end one, or ask another instance`;
    super('TooManyRequests', 429, message, { retryAfterSeconds: 1 });
  }
}

export class NoOutputError extends CnapiError {
  constructor(reason: string) {
    super('ResourceNotFound', 404, reason);
  }
}
