/** Finds the known name that an unknown name probably means. Pure. */

/** Fewer equal characters are likely to be a coincidence. */
const LEAST_LIKENESS = 3;

/**
 * `; did you mean NAME?` with the known name that shares the longest beginning or end with this
 * one; or nothing.
 */
export function suggestion(name: string, known: readonly string[]): string {
  const likeness = (other: string) => Math.max(commonStart(name, other), commonStart(reversed(name), reversed(other)));
  const [best] = known.toSorted((one, other) => likeness(other) - likeness(one));
  return best === undefined || likeness(best) < LEAST_LIKENESS ? '' : `; did you mean ${best}?`;
}

function commonStart(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length += 1;
  return length;
}

const reversed = (text: string): string => [...text].reverse().join('');
