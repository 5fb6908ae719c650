/** What can be wrong with a request before anybody's rules are asked, under the reference's codes where it has one. */
import { CnapiError, type ErrorFields, type FieldError } from '../errors.ts';

/** A parameter that cannot stand, by name: 409, as the reference has it. */
export class InvalidArgumentError extends CnapiError {
  constructor(message: string, fields: ErrorFields = {}) {
    super('InvalidArgument', 409, message, fields);
  }
}

/** One or more parameters failed their rules; all of them are listed. */
export class InvalidParametersError extends CnapiError {
  constructor(statusCode: number, errors: FieldError[]) {
    super('InvalidParameters', statusCode, 'Request parameters failed validation', { errors });
  }
}

/** A body that cannot be read as what it claims to be. */
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

/** No HTTP, too large a head, or too slow: nothing that a route could be asked about. */
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
      `Content-Type ${contentType} is not understood; send application/json or application/x-www-form-urlencoded`,
    );
  }
}

/** A path nobody serves, or an object of it that is not there. */
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

/** A Host or Origin that is not ours: a web page must not be able to run commands through somebody's browser. */
export class ForbiddenError extends CnapiError {
  constructor(message: string) {
    super('Forbidden', 403, message);
  }
}

export class UpgradeRequiredError extends CnapiError {
  constructor() {
    super('UpgradeRequired', 426, 'This is where agents connect: open a WebSocket');
  }
}

export class NotUpgradableError extends CnapiError {
  constructor() {
    super('BadRequest', 400, 'Only GET /agents/:server_uuid/link can be upgraded');
  }
}

/** An `Expect` other than 100-continue (RFC 9110, section 10.1.1). */
export class ExpectationFailedError extends CnapiError {
  constructor() {
    super('ExpectationFailed', 417, 'The expectation is not understood; send Expect: 100-continue, or none');
  }
}

export class ServerNotRunningError extends CnapiError {
  constructor(serverUuid: string, status: string) {
    super('ServerNotRunning', 409, 'Operation attempted on server which is not running', {
      errors: [{ field: 'server_uuid', code: 'Invalid', message: `server ${serverUuid} is ${status}` }],
    });
  }
}

/** Something that must be said twice was said once. */
export class PreconditionFailedError extends CnapiError {
  constructor(message: string) {
    super('PreconditionFailed', 412, message);
  }
}

/** A wait that outlasted what a leaving instance gives it; asked again at once, another instance goes on with it. */
export class InstanceDrainingError extends CnapiError {
  constructor() {
    super('InstanceDraining', 503, 'This instance is leaving; ask again, another one will answer', {
      retryAfterSeconds: 0,
    });
  }
}

/** This instance is on its way out; another one answers. */
export class StoppingError extends CnapiError {
  constructor() {
    super('ServiceUnavailable', 503, 'This instance is stopping; try again, another one will answer', {
      retryAfterSeconds: 1,
    });
  }
}
