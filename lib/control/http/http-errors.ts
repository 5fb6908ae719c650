/** Errors of the transport: requests that reach no route. */
import { CnapiError, type ErrorFields } from '../../platform/errors.ts';

/** A body that does not match its declared format. */
export class InvalidContentError extends CnapiError {
  constructor(message: string, fields: ErrorFields = {}) {
    super('InvalidContent', 400, message, fields);
  }
}

export class RequestTooLargeError extends CnapiError {
  constructor(message: string, statusCode: 413 | 414 = 413) {
    super('RequestEntityTooLarge', statusCode, message);
  }
}

/** Not HTTP, a header that is too large, or too slow: no route can be found for it. */
export class UnreadableRequestError extends CnapiError {
  constructor(cause: NodeJS.ErrnoException) {
    const [code, statusCode, message] = UNREADABLE[cause.code ?? ''] ?? [
      'InvalidContent',
      400,
      `The request is not HTTP/1.1 as it should be: ${cause.message.slice(0, 200)}`,
    ];
    super(code, statusCode, message, { cause });
  }
}

/** The answers to unreadable requests, by the code of Node's error. */
const UNREADABLE: Readonly<Record<string, [code: string, statusCode: number, message: string]>> = {
  HPE_HEADER_OVERFLOW: ['RequestEntityTooLarge', 431, 'The headers are too large or too many'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['RequestEntityTooLarge', 413, 'The extensions of a chunk are too large'],
  ERR_HTTP_REQUEST_TIMEOUT: ['RequestTimeout', 408, 'The request did not come in time'],
};

export class UnsupportedMediaTypeError extends CnapiError {
  constructor(contentType: string) {
    super(
      'UnsupportedMediaType',
      415,
      `Content-Type ${contentType} is not supported; send application/json or application/x-www-form-urlencoded`,
    );
  }
}

export class UnsupportedEncodingError extends CnapiError {
  constructor(encoding: string) {
    const message = `Content-Encoding ${encoding} is not supported; send gzip, or the body as it is`;
    super('UnsupportedMediaType', 415, message);
  }
}

export class MethodNotAllowedError extends CnapiError {
  constructor(method: string) {
    super('MethodNotAllowedError', 405, `${method} is not allowed`);
  }
}

/**
 * The Host or Origin header names another site. A web page must not be able to run commands through
 * the browser of its visitor.
 */
export class ForbiddenError extends CnapiError {
  constructor(message: string) {
    super('Forbidden', 403, message);
  }
}

export class UpgradeRequiredError extends CnapiError {
  constructor() {
    super(
      'UpgradeRequired',
      426,
      'This path accepts WebSocket upgrades only, on a connection without unanswered requests',
    );
  }
}

export class NotUpgradableError extends CnapiError {
  constructor(message = 'This path cannot be upgraded to a WebSocket') {
    super('BadRequest', 400, message);
  }
}

/** An `Expect` other than 100-continue (RFC 9110, section 10.1.1). */
export class ExpectationFailedError extends CnapiError {
  constructor() {
    super('ExpectationFailed', 417, 'The expectation is not supported; send Expect: 100-continue, or none');
  }
}

/** This instance is stopping; another one answers. */
export class StoppingError extends CnapiError {
  constructor() {
    super('ServiceUnavailable', 503, 'This instance is stopping; try again at another instance', {
      retryAfterSeconds: 1,
    });
  }
}

/** The caller's own text, shortened, for a message that names it. */
export function printable(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?').slice(0, 100);
}
