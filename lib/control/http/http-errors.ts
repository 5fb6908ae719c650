/**
 * Errors in a request that no route's rules check, under the codes of Triton's CNAPI where there
 * are any.
 */
import { CnapiError, type ErrorFields } from '../../platform/errors.ts';

/** An unacceptable parameter, by name: 409, as in Triton's CNAPI. */
export class InvalidArgumentError extends CnapiError {
  constructor(message: string, fields: ErrorFields = {}) {
    super('InvalidArgument', 409, message, fields);
  }
}

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

/** By the code of Node's error. */
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

/** An unknown path, or a missing object of a known one. */
export class ResourceNotFoundError extends CnapiError {
  constructor(message: string) {
    super('ResourceNotFound', 404, message);
  }
}

export class MethodNotAllowedError extends CnapiError {
  constructor(method: string) {
    super('MethodNotAllowedError', 405, `${method} is not allowed`);
  }
}

/**
 * A foreign Host or Origin: a web page must not be able to run commands through somebody's browser.
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

export class ServerNotRunningError extends CnapiError {
  constructor(serverUuid: string, status: string) {
    super('ServerNotRunning', 409, 'Operation attempted on server which is not running', {
      errors: [{ field: 'server_uuid', code: 'Invalid', message: `server ${serverUuid} is ${status}` }],
    });
  }
}

/** A required confirmation is missing: a parameter must be given twice. */
export class PreconditionFailedError extends CnapiError {
  constructor(message: string) {
    super('PreconditionFailed', 412, message);
  }
}

/**
 * A wait that outlasted the time that a leaving instance gives it. If the caller repeats the
 * request, another instance continues it.
 */
export class InstanceDrainingError extends CnapiError {
  constructor() {
    super('InstanceDraining', 503, 'This instance is leaving; ask again, another one will answer', {
      retryAfterSeconds: 0,
    });
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
