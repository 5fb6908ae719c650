/**
 * The base of every error a caller can act on. Each situation has a class of its own in its noun's folder; this one
 * carries what all of them need: a stable `code`, the HTTP status it maps to, and what it was about.
 */
export interface ErrorFields {
  cause?: unknown;
  /** Per-field complaints, as the reference's validation errors have them. */
  errors?: FieldError[];
  /** Seconds after which it is worth trying again (HTTP Retry-After). */
  retryAfterSeconds?: number;
}

export interface FieldError {
  field: string;
  code: string;
  message: string;
}

export class CnapiError extends Error {
  readonly code: string;
  readonly statusCode: number;
  readonly errors: FieldError[] | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: string, statusCode: number, message: string, fields: ErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = new.target.name;
    this.code = code;
    this.statusCode = statusCode;
    this.errors = fields.errors;
    this.retryAfterSeconds = fields.retryAfterSeconds;
  }
}

/** The database does not answer; the request changed nothing that is known. 503. */
export class DatabaseUnavailableError extends CnapiError {
  constructor(cause?: unknown) {
    super('ServiceUnavailable', 503, 'The database does not answer; try again shortly', {
      cause,
      retryAfterSeconds: 1,
    });
  }
}

/** Text of anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
