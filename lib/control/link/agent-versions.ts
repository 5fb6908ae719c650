/**
 * The connected agents by version, for a metric. Versions are what agents say, so their number is
 * bounded. Pure.
 */

const MAX_VERSIONS = 20;
const OTHER = 'other';
const PLAIN_VERSION = /^[\w.+-]{1,40}$/;

/**
 * The most frequent versions; all further ones, and texts that are not versions, count as `other`.
 */
export function countVersions(versions: Iterable<string>): Record<string, number> {
  const counts = new Map<string, number>();
  for (const version of versions) {
    const name = PLAIN_VERSION.test(version) ? version : OTHER;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const frequent = [...counts].sort(([, one], [, other]) => other - one);
  const shown = new Map(frequent.slice(0, MAX_VERSIONS));
  for (const [, count] of frequent.slice(MAX_VERSIONS)) shown.set(OTHER, (shown.get(OTHER) ?? 0) + count);
  return Object.fromEntries(shown);
}
