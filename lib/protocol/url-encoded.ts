/**
 * Limits the cost of a query string or a form body: `URLSearchParams` makes a list of all pairs,
 * which takes far more memory than the text for a megabyte of `a&a&…`. Pure. Used for the requests
 * of both ends. The receiver limits the bytes.
 */
export const MAX_PARAMS = 1000;

/**
 * Counts separators only, including those of empty pairs, and stops when the limit is exceeded.
 * Call it before parsing.
 */
export function hasTooManyParams(encoded: string): boolean {
  let params = 1;
  for (let at = encoded.indexOf('&'); at !== -1; at = encoded.indexOf('&', at + 1)) {
    params += 1;
    if (params > MAX_PARAMS) return true;
  }
  return false;
}
