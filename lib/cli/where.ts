/** Conditions on servers as the command line has them: `hostname=web-*`, `traits.rack=r1`, `status!=running`. Pure. */
import { UsageError } from './usage-error.ts';

export interface Condition {
  path: readonly string[];
  isNot: boolean;
  pattern: RegExp;
}

/** @throws UsageError */
export function parseWhere(text: string): Condition {
  const [, name, not, value] = /^([A-Za-z_][\w.-]*?)(!?)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined)
    throw new UsageError(`--where ${text} is not NAME=PATTERN, such as hostname=web-* or datacenter!=east`);
  const pattern = value.split('*').map((part) => part.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'));
  return { path: name.split('.'), isNot: not === '!', pattern: new RegExp(`^${pattern.join('[^]*')}$`) };
}

/** What is not there is the empty text. */
export function matches(object: Readonly<Record<string, unknown>>, { path, isNot, pattern }: Condition): boolean {
  let value: unknown = object;
  for (const name of path) {
    const isObject = typeof value === 'object' && value !== null && Object.hasOwn(value, name);
    value = isObject ? (value as Record<string, unknown>)[name] : undefined;
  }
  const text =
    value === undefined || value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
  return pattern.test(text) !== isNot;
}
