/** The ways in which a call can fail. */
import { withoutUndefined } from '../platform/defined-fields.ts';
import { CnapiError, type FieldError } from '../platform/errors.ts';

interface AnswerFacts {
  address: string;
  requestId: string | undefined;
  retryAfterSeconds?: number | undefined;
  errors?: FieldError[] | undefined;
}

/** An instance answered with an error; `code` and `statusCode` are those of the answer. */
export class ApiError extends CnapiError {
  readonly address: string;
  readonly requestId: string | undefined;
  /**
   * An earlier attempt of the same call broke off, or had a 503 that does not say that nothing was
   * changed. It may have done what this attempt was refused for.
   */
  mayBeDone = false;

  constructor(code: string, statusCode: number, message: string, facts: AnswerFacts) {
    const { errors, retryAfterSeconds } = facts;
    super(code, statusCode, message, {
      ...withoutUndefined({ errors, retryAfterSeconds }),
    });
    this.address = facts.address;
    this.requestId = facts.requestId;
  }
}

/** One address that was tried without success. */
export interface FailedAttempt {
  address: string;
  reason: string;
  /** Whether the request may have reached an instance. */
  mayHaveArrived: boolean;
}

/** No instance answered. Whether the request was carried out is unknown if `mayHaveArrived`. */
export class NoAnswerError extends CnapiError {
  readonly attempts: readonly FailedAttempt[];
  readonly mayHaveArrived: boolean;

  constructor(what: string, attempts: readonly FailedAttempt[], cause?: unknown) {
    const each = attempts.map(({ address, reason }) => `${address}: ${reason}`).join('; ');
    super('NoAnswer', 503, `No instance answered ${what}: ${each || 'there is none to ask'}`, { cause });
    this.attempts = attempts;
    // A GET changes nothing, even if it arrived.
    this.mayHaveArrived = !what.startsWith('GET ') && attempts.some(({ mayHaveArrived }) => mayHaveArrived);
  }
}

/** An instance's answer does not match the API. */
export class UnexpectedAnswerError extends CnapiError {
  readonly address: string;
  readonly requestId: string | undefined;

  constructor(message: string, { address, requestId }: AnswerFacts, cause?: unknown) {
    super('UnexpectedAnswer', 502, message, { cause });
    this.address = address;
    this.requestId = requestId;
  }
}

/** The credentials for calls are invalid. */
export class CredentialsError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('InvalidCredentials', 401, message, { cause });
  }
}
