/**
 * Merges and differences of JSON objects, as the annealer uses them. Pure. Objects are merged and
 * compared member by member; arrays and other values are whole.
 */
import { isJsonObject, type JsonObject } from '../../protocol/json/bounded-json.ts';

/** A new object: later objects win. Arguments are not changed. */
export function deepMerge(...objects: readonly JsonObject[]): JsonObject {
  const members = new Map<string, unknown>();
  for (const object of objects)
    for (const [name, value] of Object.entries(object)) members.set(name, mergedValue(members.get(name), value));
  return Object.fromEntries(members);
}

const mergedValue = (before: unknown, after: unknown): unknown =>
  isJsonObject(before) && isJsonObject(after) ? deepMerge(before, after) : after;

/** The members of `returned` that `sent` does not have, or has with another value. */
export function deepDifference(sent: JsonObject, returned: JsonObject): JsonObject {
  const members: [string, unknown][] = [];
  for (const [name, value] of Object.entries(returned)) {
    const before = Object.hasOwn(sent, name) ? sent[name] : undefined;
    if (isJsonObject(before) && isJsonObject(value)) {
      const inside = deepDifference(before, value);
      if (Object.keys(inside).length > 0) members.push([name, inside]);
    } else if (!isSameJson(before, value)) {
      members.push([name, value]);
    }
  }
  return Object.fromEntries(members);
}

/** Equal as JSON. The order of the members of an object does not matter. */
export function isSameJson(one: unknown, other: unknown): boolean {
  if (Array.isArray(one) && Array.isArray(other))
    return one.length === other.length && one.every((item, index) => isSameJson(item, other[index]));
  if (isJsonObject(one) && isJsonObject(other)) {
    const names = Object.keys(one);
    return (
      names.length === Object.keys(other).length &&
      names.every((name) => Object.hasOwn(other, name) && isSameJson(one[name], other[name]))
    );
  }
  return one === other;
}

/** The value at a path such as `db/port`; undefined if there is none. */
export function valueAt(object: JsonObject, path: string): unknown {
  let value: unknown = object;
  for (const name of path.split('/')) {
    if (!isJsonObject(value) || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return value;
}

/** An object that has only this value, at this path. */
export const objectWith = (path: string, value: unknown): JsonObject =>
  path.split('/').reduceRight<unknown>((inside, name) => Object.fromEntries([[name, inside]]), value) as JsonObject;
