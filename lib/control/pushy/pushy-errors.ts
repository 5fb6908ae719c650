/** Refusals of requests to /pushy, and the form that Chef gives to all errors there. */
import { CnapiError, type FieldError } from '../../platform/errors.ts';
import { MAX_PUSHY_BODY_BYTES, type PushyError } from '../../protocol/api/pushy.ts';
import { InvalidArgumentError } from '../http/http-errors.ts';
import { errorReply } from '../http/reply/error-mapping.ts';
import type { Reply } from '../http/route.ts';

/** A body that is no job. Nothing was created. */
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

export class JobNotFoundError extends CnapiError {
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

/**
 * As in Chef, what is wrong with a job is a text, and every other error a list with one
 * text. Beside Chef's texts, `field` names what is wrong with a job. A parameter that is repeated or
 * cannot be stored is 409 in Triton's CNAPI, and a bad request here.
 */
export function pushyErrorReply(error: unknown): Reply {
  const reply = errorReply(error);
  const status = error instanceof InvalidArgumentError ? 400 : reply.status;
  return { ...reply, status, body: bodyOf(error, reply) };
}

function bodyOf(error: unknown, { status, body }: Reply): PushyError {
  if (status === 413) return { error: `JSON must be no more than ${MAX_PUSHY_BODY_BYTES} bytes.` };
  const { message, errors = [] } = body as { message: string; errors?: readonly FieldError[] };
  const fields = errors.map((one) => `${one.field} ${one.message}`);
  if (!(error instanceof InvalidJobError)) return { error: [[message, ...fields].join(': ')] };
  const { field, detail } = error;
  return {
    error: message,
    ...(field === undefined ? {} : { field }),
    ...(detail === undefined ? {} : { detail }),
  };
}
