/** The header that makes a create repeatable if its answer was lost: for tasks and for tickets. */
import { invalidParameter } from '../../platform/errors.ts';

const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,200}$/;

/** @throws InvalidParametersError */
export function idempotencyKey(header: (name: string) => string | undefined): string | undefined {
  const key = header('Idempotency-Key');
  if (key === undefined || IDEMPOTENCY_KEY.test(key)) return key;
  throw invalidParameter('Idempotency-Key', 'value was not 1 to 200 visible ASCII characters');
}
