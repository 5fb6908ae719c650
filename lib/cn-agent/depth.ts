/** JSON deeper than a few thousand levels can be read but not written, neither to the journal nor when it is compacted. Pure. */
const MAX_DEPTH = 200;

export function isTooDeep(value: unknown, levels = MAX_DEPTH): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((one) => isTooDeep(one, levels - 1));
}
