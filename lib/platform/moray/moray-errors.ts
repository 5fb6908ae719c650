/**
 * Errors that a caller of the bucket store can act on. Some reach the callers of the API, who do
 * not know the buckets: their messages do not name them.
 */
import { CnapiError } from '../errors.ts';

export class ObjectNotFoundError extends CnapiError {
  readonly bucket: string;

  constructor(bucket: string, key: string) {
    super('ObjectNotFound', 404, `${key} does not exist`);
    this.bucket = bucket;
  }
}

export class EtagConflictError extends CnapiError {
  readonly bucket: string;
  /** The object's etag at that time; null if the object did not exist. */
  readonly actual: string | null;

  constructor(bucket: string, key: string, expected: string | null, actual: string | null) {
    const wanted = expected === null ? 'was expected not to exist' : `was expected to have etag '${expected}'`;
    const found = actual === null ? 'does not exist' : `has etag '${actual}'`;
    super('EtagConflict', 409, `${key} ${wanted} but ${found}; read it again and decide again`);
    this.bucket = bucket;
    this.actual = actual;
  }
}

export class UniqueAttributeError extends CnapiError {
  /** The fields whose values another object has already, all of them together. */
  readonly fields: readonly string[];

  constructor(fields: readonly string[], cause?: unknown) {
    const field = fields.join(' and ');
    const message = `Another object has the same ${field}, and no two may have it`;
    super('UniqueAttribute', 409, message, { cause, errors: [{ field, code: 'Duplicate', message }] });
    this.fields = fields;
  }
}

export class InvalidQueryError extends CnapiError {
  constructor(message: string, { field, cause }: { field?: string; cause?: unknown } = {}) {
    const errors = field === undefined ? undefined : [{ field, code: 'Invalid', message }];
    super('InvalidQuery', 400, message, { cause, ...(errors && { errors }) });
  }
}

export class NotIndexedError extends CnapiError {
  readonly bucket: string;

  constructor(bucket: string, fieldNames: readonly string[]) {
    const errors = fieldNames.map((field) => ({ field, code: 'NotIndexed', message: `${field} is not indexed` }));
    super('NotIndexed', 400, `There is no index on ${fieldNames.join(', ')}; filter and sort by indexed fields`, {
      errors,
    });
    this.bucket = bucket;
  }
}
