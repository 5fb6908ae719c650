/**
 * Versions of packages, in the form and the order of Semantic Versioning 2.0.0 (section 11). Pure.
 */

/** MAJOR.MINOR.PATCH, and a pre-release if there is one; no build metadata. */
export const PACKAGE_VERSION =
  /^(?:0|[1-9]\d{0,8})\.(?:0|[1-9]\d{0,8})\.(?:0|[1-9]\d{0,8})(?:-[0-9A-Za-z]{1,20}(?:\.[0-9A-Za-z]{1,20}){0,4})?$/;

/** Negative if `one` is before `other`, 0 if they are equal. Both match PACKAGE_VERSION. */
export function compareVersions(one: string, other: string): number {
  const [left, right] = [partsOf(one), partsOf(other)];
  for (const [index, number] of left.numbers.entries()) {
    const difference = number - (right.numbers[index] ?? 0);
    if (difference !== 0) return difference;
  }
  if (left.pre.length === 0 || right.pre.length === 0) return right.pre.length - left.pre.length;
  return comparePre(left.pre, right.pre);
}

function comparePre(left: readonly string[], right: readonly string[]): number {
  for (const [index, name] of left.entries()) {
    const other = right[index];
    if (other === undefined) return 1;
    const difference = compareNames(name, other);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

/** Numbers are before names. */
function compareNames(left: string, right: string): number {
  const areNumbers = [left, right].map((name) => /^\d+$/.test(name));
  if (areNumbers.every((isNumber) => isNumber)) return Number(left) - Number(right);
  if (areNumbers[0] !== areNumbers[1]) return areNumbers[0] ? -1 : 1;
  return left < right ? -1 : left > right ? 1 : 0;
}

function partsOf(version: string): { numbers: number[]; pre: string[] } {
  const at = version.indexOf('-');
  const core = at < 0 ? version : version.slice(0, at);
  return { numbers: core.split('.').map(Number), pre: at < 0 ? [] : version.slice(at + 1).split('.') };
}
