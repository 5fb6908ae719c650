/**
 * Whether a date of ISO 8601 (2030, 2030-02 or 2030-02-28) exists. `Date` takes 2030-02-30 for 2
 * March. Pure.
 */
export function isDate(date: string): boolean {
  const ms = Date.parse(date);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(date);
}
