/** Parses the numbers of options such as --limit. Pure. */
import { UsageError } from './command-errors.ts';

/**
 * Parses a whole number from 1 to `max`. Without `max` it has at most nine digits.
 * @throws UsageError
 */
export function parseCount(text: string, option: string, max?: number): number {
  const count = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (count >= 1 && count <= (max ?? count)) return count;
  throw new UsageError(`${option} ${text} is not a whole number ${max === undefined ? 'above 0' : `from 1 to ${max}`}`);
}

/** Parses a number above 0, such as 20 or 0.5. @throws UsageError */
export function parseRate(text: string, option: string): number {
  const rate = /^\d{1,6}(\.\d{1,3})?$/.test(text) ? Number(text) : 0;
  if (rate > 0) return rate;
  throw new UsageError(`${option} ${text} is not a number above 0, such as 20 or 0.5`);
}
