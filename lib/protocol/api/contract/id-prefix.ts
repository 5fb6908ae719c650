/** The prefixes of ids that the lists of tasks and of push jobs accept. Pure. */
import { text } from './rules.ts';

const MIN_PREFIX_CHARS = 4;

/**
 * The first and the last id with this prefix; undefined if no id begins with it, or too many do.
 */
export function idRangeOf(prefix: string): { first: string; last: string } | undefined {
  const shape = '00000000-0000-0000-0000-000000000000';
  const isBeginning = [...prefix].every((one, at) => (shape[at] === '-' ? one === '-' : /[0-9a-f]/.test(one)));
  if (prefix.length < MIN_PREFIX_CHARS || prefix.length > shape.length || !isBeginning) return undefined;
  const rest = shape.slice(prefix.length);
  return { first: prefix + rest, last: prefix + rest.replaceAll('0', 'f') };
}

/** The parameter `id_prefix`. */
export const idPrefix = text()
  .toLowerCase()
  .refine((value) => idRangeOf(value) !== undefined, 'value is not the beginning of an id, of 4 characters or more');
