/**
 * The base of every error a caller can act on. Each situation has its own class in its noun's
 * folder. This class carries what all of them need: a stable `code`, the HTTP status, and details.
 */
export interface ErrorFields {
  cause?: unknown;
  /** One entry per wrong field, in the form of Triton's validation errors. */
  errors?: FieldError[];
  /** Seconds after which a retry makes sense (HTTP Retry-After). */
  retryAfterSeconds?: number;
  /** How to authenticate if not by a bearer token (HTTP WWW-Authenticate). Only for status 401. */
  challenge?: string;
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
  readonly challenge: string | undefined;

  constructor(code: string, statusCode: number, message: string, fields: ErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = new.target.name;
    this.code = code;
    this.statusCode = statusCode;
    this.errors = fields.errors;
    this.retryAfterSeconds = fields.retryAfterSeconds;
    this.challenge = fields.challenge;
  }
}

/** One or more parameters failed their rules; all of them are listed. */
export class InvalidParametersError extends CnapiError {
  constructor(statusCode: number, errors: FieldError[]) {
    super('InvalidParameters', statusCode, 'Request parameters failed validation', { errors });
  }
}

/** One parameter cannot have its value, which its rules alone do not say. */
export const invalidParameter = (field: string, message: string): InvalidParametersError =>
  new InvalidParametersError(400, [{ field, code: 'Invalid', message }]);

/**
 * The results of these checks, one after the other. @throws InvalidParametersError with what all of
 * them refuse; any other error ends the checks immediately
 */
export async function checkAll<Checks extends readonly (() => unknown)[]>(...checks: Checks) {
  const errors: FieldError[] = [];
  const results: unknown[] = [];
  for (const check of checks) {
    try {
      results.push(await check());
    } catch (error) {
      if (!(error instanceof InvalidParametersError)) throw error;
      errors.push(...(error.errors ?? []));
    }
  }
  if (errors.length > 0) throw new InvalidParametersError(400, errors);
  return results as { -readonly [Index in keyof Checks]: Awaited<ReturnType<Checks[Index]>> };
}

/**
 * The database does not answer, or takes no writes. If it does not answer, it is unknown whether
 * the statement was carried out. 503.
 */
export class DatabaseUnavailableError extends CnapiError {
  constructor(cause?: unknown, message = 'The database does not answer; try again shortly') {
    super('ServiceUnavailable', 503, message, {
      cause,
      retryAfterSeconds: 1,
    });
  }
}

/**
 * The database answers, but cannot carry out this statement now. A row is locked, the statement is
 * slow, or it needs more memory than there is: it was rolled back. Or it had no answer in time,
 * because it or its answer is large: it is unknown whether it was carried out. This says nothing
 * about other statements or the database's health. 503.
 */
export class DatabaseBusyError extends CnapiError {
  readonly condition: 'locked' | 'slow' | 'resources' | 'unanswered';

  constructor(condition: DatabaseBusyError['condition'], cause?: unknown) {
    const reasons = {
      locked: 'What this request needs is locked by another one; try again shortly',
      slow: 'The database took too long for this request; try again shortly',
      resources: 'The database lacks the resources for this request; try again shortly',
      unanswered: "The database's answer to this request did not arrive in time; try again shortly",
    };
    // Callers may rely on DatabaseBusy that nothing was changed.
    const code = condition === 'unanswered' ? 'ServiceUnavailable' : 'DatabaseBusy';
    super(code, 503, reasons[condition], { cause, retryAfterSeconds: 1 });
    this.condition = condition;
  }
}

/** The statement may have been carried out, although the database is not down. */
export function isUnanswered(error: unknown): error is DatabaseBusyError {
  return error instanceof DatabaseBusyError && error.condition === 'unanswered';
}

/** The same statement may succeed later. */
export function isTemporary(error: unknown): error is DatabaseUnavailableError | DatabaseBusyError {
  return error instanceof DatabaseUnavailableError || error instanceof DatabaseBusyError;
}

/** The message of any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
