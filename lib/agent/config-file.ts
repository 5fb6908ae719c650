/**
 * Reads the agent's options from a JSON file, for tools that write files instead of command lines.
 * The options are those of the command line, in camelCase (`tlsName` is `--tls-name`). The command
 * line takes precedence. Used by options.ts.
 */
import { readFileSync } from 'node:fs';
import { messageOf } from '../platform/errors.ts';

type Kind = { type: 'string' | 'boolean'; multiple?: boolean };
type Value = string | boolean | string[];

/** @throws Error naming the file and the key */
export function readOptionsFile(file: string, options: Readonly<Record<string, Kind>>): Record<string, Value> {
  try {
    const found: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (typeof found !== 'object' || found === null || Array.isArray(found)) throw new Error('it is not a JSON object');
    return Object.fromEntries(Object.entries(found).map(([key, value]) => optionOf(key, value, options)));
  } catch (cause) {
    throw new Error(`--config ${file} cannot be used: ${messageOf(cause)}`, { cause });
  }
}

function optionOf(key: string, value: unknown, options: Readonly<Record<string, Kind>>): [string, Value] {
  const name = key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const kind = Object.hasOwn(options, name) ? options[name] : undefined;
  if (!kind || name === 'config' || name === 'help' || key.includes('-')) throw new Error(`unknown key ${key}`);
  if (kind.type === 'boolean' && typeof value === 'boolean') return [name, value];
  if (kind.type === 'string' && kind.multiple) return [name, listOf(key, value)];
  if (kind.type === 'string' && typeof value === 'string') return [name, value];
  if (kind.type === 'string' && Number.isInteger(value)) return [name, String(value)];
  throw new Error(`${key} is not ${kind.type === 'boolean' ? 'true or false' : 'a string'}`);
}

/** Accepts a list of strings, or one string with commas. */
function listOf(key: string, value: unknown): string[] {
  if (typeof value === 'string') return value.split(',').map((one) => one.trim());
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value;
  throw new Error(`${key} is neither a string nor a list of strings`);
}
