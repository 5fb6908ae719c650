/**
 * JSON deeper than a few thousand levels can be parsed, but not written to the journal or
 * compacted. Pure.
 */
const MAX_DEPTH = 200;

export function isTooDeep(value: unknown, levels = MAX_DEPTH): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((one) => isTooDeep(one, levels - 1));
}
