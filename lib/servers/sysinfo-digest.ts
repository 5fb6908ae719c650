/** The digest of a sysinfo whose sender gave none: of its canonical text, so that the order of keys does not matter. Pure. */
import { createHash } from 'node:crypto';

export function sysinfoDigest(sysinfo: Record<string, unknown>): string {
  return createHash('sha256').update(canonicalJson(sysinfo)).digest('hex');
}

/** JSON with the keys of every object in order, and without those that JSON leaves out. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, one: unknown) => {
    if (typeof one !== 'object' || one === null || Array.isArray(one)) return one;
    return Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}
