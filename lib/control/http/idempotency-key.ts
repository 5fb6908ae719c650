/** The header that makes a create repeatable if its answer was lost: for tasks and for tickets. */
import { InvalidParametersError } from './http-errors.ts';

const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,200}$/;

/** @throws InvalidParametersError */
export function idempotencyKey(header: (name: string) => string | undefined): string | undefined {
  const key = header('Idempotency-Key');
  if (key === undefined || IDEMPOTENCY_KEY.test(key)) return key;
  const message = 'value was not 1 to 200 visible ASCII characters';
  throw new InvalidParametersError(400, [{ field: 'Idempotency-Key', code: 'Invalid', message }]);
}
