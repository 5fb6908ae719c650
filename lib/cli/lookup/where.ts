/**
 * Conditions on servers as written on the command line: `hostname=web-*`, `traits.rack=r1`,
 * `status!=running`. Pure.
 */
import { parseWhere as parseCondition, type WhereCondition } from '../../protocol/where.ts';
import { UsageError } from '../terminal/command-errors.ts';

export interface Condition extends Pick<WhereCondition, 'path' | 'isNot'> {
  pattern: RegExp;
}

/** @throws UsageError */
export function parseWhereOption(text: string): Condition {
  const condition = parseCondition(text);
  if (condition === undefined)
    throw new UsageError(`--where ${text} is not NAME=PATTERN, such as hostname=web-* or datacenter!=east`);
  const pattern = condition.parts.map((part) => part.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'));
  return { ...condition, pattern: new RegExp(`^${pattern.join('[^]*')}$`) };
}

type Properties = Readonly<Record<string, unknown>>;

/** A missing property counts as an empty text. */
export function matches(object: Properties, { path, isNot, pattern }: Condition): boolean {
  const value = valueAt(object, path) ?? '';
  return pattern.test(typeof value === 'object' ? JSON.stringify(value) : String(value)) !== isNot;
}

export function hasProperty(object: Properties, { path }: Pick<Condition, 'path'>): boolean {
  return valueAt(object, path) !== undefined;
}

export function noSuchProperty({ path }: Pick<Condition, 'path'>): UsageError {
  return new UsageError(`No server has a property ${path.join('.')}; cnapi servers --json shows what they have`);
}

function valueAt(object: Properties, path: readonly string[]): unknown {
  let value: unknown = object;
  for (const name of path) {
    const isObject = typeof value === 'object' && value !== null && Object.hasOwn(value, name);
    value = isObject ? (value as Properties)[name] : undefined;
  }
  return value;
}
