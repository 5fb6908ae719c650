/**
 * One text for equal values, and its digest: what an agent and an instance compare sysinfo by, and how a repeated request is
 * known. Both ends must write the same text, in every version. Pure.
 */
import { createHash } from 'node:crypto';

/** Of the canonical text, in hexadecimal digits. */
export function digestOf(value: unknown): string {
  return createHash('sha256').update(canonicalJson(value)).digest('hex');
}

/**
 * JSON with the keys of every object in order, and without those that JSON leaves out. Written by hand: no object keeps keys
 * that look like whole numbers ("10", "9") in an order of ours.
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, inner]) => `${JSON.stringify(key)}:${canonicalJson(inner)}`).join(',')}}`;
}
