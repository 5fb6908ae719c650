/**
 * Canonical JSON: equal values give the same text, and so the same digest. An agent and an instance
 * compare sysinfo by it, and an instance recognizes a repeated request by it. Both ends must write
 * the same text in every version. Pure.
 */
import { createHash } from 'node:crypto';

/** SHA-256 of the canonical text, in hexadecimal digits. */
export function digestOf(value: unknown): string {
  return createHash('sha256').update(canonicalJson(value)).digest('hex');
}

/**
 * JSON with sorted keys in every object, without the members that JSON omits. Hand-written, because
 * a JavaScript object always puts keys that look like whole numbers ("10", "9") in numeric order.
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, inner]) => `${JSON.stringify(key)}:${canonicalJson(inner)}`).join(',')}}`;
}
