/**
 * `t.match` for whole lists. tap's own accepts a list that is longer than its pattern, any list for
 * `[]` and any object for `{}`, so it cannot say "nothing" or "only this". The linter refuses `[…]`
 * and `{}` in the pattern of `t.match` (tools/lint/whole-lists.grit).
 */

import type { Test } from 'tap';

/**
 * Like `t.match`, and each list must have exactly as many items as its pattern; `{}` matches only
 * an empty object. Write `Array` or `Object` for any.
 */
export function matchLists(t: Test, found: unknown, pattern: unknown, message = 'should match pattern'): boolean {
  return t.match(withLengths(found, pattern), withLengths(pattern, pattern), message);
}

/** Makes fields of what tap does not compare: the length of a list, and that an object is empty. */
function withLengths(value: unknown, pattern: unknown): unknown {
  if (Array.isArray(pattern)) return Array.isArray(value) ? listWithLength(value, pattern) : value;
  if (!isPlain(pattern) || typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(pattern).filter(([key]) => key in value);
  if (fields.length === 0 && Object.keys(pattern).length === 0) return { fieldCount: Object.keys(value).length };
  const compared = fields.map(([key, wanted]) => [key, withLengths(value[key as keyof typeof value], wanted)]);
  return { ...value, ...Object.fromEntries(compared) };
}

function listWithLength(list: readonly unknown[], pattern: readonly unknown[]): object {
  return { ...list.map((item, at) => withLengths(item, pattern[at])), length: list.length };
}

function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
