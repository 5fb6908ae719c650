/**
 * Errors for valid requests that a noun cannot carry out, with Triton's codes where they exist.
 */
import { CnapiError, type ErrorFields } from '../platform/errors.ts';

/** An unacceptable parameter, by name: 409, as in Triton's CNAPI. */
export class InvalidArgumentError extends CnapiError {
  constructor(message: string, fields: ErrorFields = {}) {
    super('InvalidArgument', 409, message, fields);
  }
}

/** An unknown path, or a missing object of a known one. */
export class ResourceNotFoundError extends CnapiError {
  constructor(message: string) {
    super('ResourceNotFound', 404, message);
  }
}

/** A required confirmation is missing: a parameter must be given twice. */
export class PreconditionFailedError extends CnapiError {
  constructor(message: string) {
    super('PreconditionFailed', 412, message);
  }
}

/**
 * A draining instance ends long requests and starts no new ones. If the caller repeats the request,
 * another instance continues it.
 */
export class InstanceDrainingError extends CnapiError {
  constructor(advice = 'ask again, another one will answer', retryAfterSeconds = 0) {
    super('InstanceDraining', 503, `This instance is leaving; ${advice}`, { retryAfterSeconds });
  }
}
