/**
 * The body of a POST to /pushy/jobs: a closed set of keys, with the limits and texts of
 * Chef. Limits that Chef does not have are those of POST /push-jobs. Pure.
 */
import type { z } from 'zod';
import { CHEF_JOB_KEYS } from '../../../protocol/api/chef.ts';
import { parsePushFile } from '../../../protocol/api/push/job-params.ts';
import { DEFAULT_RUN_TIMEOUT_MS, pushJobContracts } from '../../../protocol/api/push/jobs.ts';
import { isJsonObject, JsonLimitError, parseBoundedJson } from '../../../protocol/json/bounded-json.ts';
import { reasonNotStorable } from '../../../protocol/json/storable.ts';
import { MAX_PUSH_FILE_BYTES, MAX_PUSH_NODES, MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import { InvalidJobError } from '../pushy-errors.ts';
import { duplicateKeyIn } from './duplicate-key.ts';

export interface ChefJobBody {
  command: string;
  /** The names of the nodes, each once. */
  nodes: string[];
  quorum: number;
  runTimeoutMs: number;
  user: string | undefined;
  dir: string | undefined;
  env: Record<string, string> | undefined;
  file: Buffer | undefined;
  capture: boolean;
}

type Fields = Readonly<Record<string, unknown>>;

const MAX_VALUES = 50_000;
const { shape } = pushJobContracts.CreatePushJob.params;

/** @throws InvalidJobError */
export function parseJobBody(bytes: Buffer): ChefJobBody {
  const text = textOf(bytes);
  const fields = fieldsOf(text);
  const unknownKey = Object.keys(fields).find((key) => !(CHEF_JOB_KEYS as readonly string[]).includes(key));
  if (unknownKey !== undefined) throw new InvalidJobError('invalid key supplied', unknownKey.slice(0, 100));
  for (const [key, value] of Object.entries(fields)) checkStorableValue(key, value);
  const nodes = nodesOf(fields.nodes);
  return {
    command: parseCommand(fields.command),
    nodes,
    quorum: quorumOf(fields.quorum, nodes.length),
    runTimeoutMs: runTimeoutOf(fields.run_timeout),
    user: textOption(fields, 'user', shape.user),
    dir: textOption(fields, 'dir', shape.dir),
    env: envOf(fields.env, text),
    file: parseFile(fields.file),
    capture: captureOf(fields.capture_output),
  };
}

function textOf(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new InvalidJobError('invalid JSON', undefined, 'the body is not UTF-8');
  }
}

function fieldsOf(text: string): Fields {
  let value: unknown;
  try {
    value = parseBoundedJson(text, { maxValues: MAX_VALUES });
  } catch (error) {
    const reason = error instanceof JsonLimitError ? `the body ${error.message}` : (error as Error).message;
    throw new InvalidJobError('invalid JSON', undefined, reason.slice(0, 200));
  }
  if (!isJsonObject(value)) throw new InvalidJobError('invalid JSON', undefined, 'the body is not an object');
  return value;
}

function checkStorableValue(key: string, value: unknown): void {
  const reason = reasonNotStorable(value);
  if (reason !== undefined) throw new InvalidJobError(`invalid ${key} supplied`, key, `it ${reason}`);
}

/** The command may be empty, as in Chef. */
function parseCommand(value: unknown): string {
  if (typeof value !== 'string') throw new InvalidJobError('invalid command supplied', 'command');
  if (value !== '') checkBy(shape.command, value, 'command');
  return value;
}

function nodesOf(value: unknown): string[] {
  if (!Array.isArray(value) || value.length === 0)
    throw new InvalidJobError('at least one node must be supplied', 'nodes');
  const invalid = (detail: string) => new InvalidJobError('invalid nodes supplied', 'nodes', detail);
  if (value.length > MAX_PUSH_NODES) throw invalid(`there are more than ${MAX_PUSH_NODES}`);
  if (!value.every((name) => typeof name === 'string')) throw invalid('expected an array of strings');
  const names = new Set<string>();
  for (const name of value) {
    if (names.has(name)) throw invalid(`'${name.slice(0, 100)}' is named twice`);
    names.add(name);
  }
  return value;
}

/** A job with quorum 0 would start without any node that is ready. */
function quorumOf(value: unknown, nodes: number): number {
  if (value === undefined) return nodes;
  if (typeof value !== 'number') throw notNumber('quorum');
  if (value < 0 || value > nodes)
    throw new InvalidJobError(
      'invalid quorum supplied',
      'quorum',
      `expected a number from 0 to ${nodes}, that of the nodes`,
    );
  return Math.max(1, Math.ceil(value));
}

function runTimeoutOf(value: unknown): number {
  if (value === undefined) return DEFAULT_RUN_TIMEOUT_MS;
  if (typeof value !== 'number') throw notNumber('run_timeout');
  if (value < 0 || value * 1000 > MAX_TASK_TIMEOUT_MS) {
    const detail = `expected a number of seconds from 0 to ${MAX_TASK_TIMEOUT_MS / 1000}`;
    throw new InvalidJobError('invalid run_timeout supplied', 'run_timeout', detail);
  }
  return Math.max(1, Math.round(value * 1000));
}

function textOption(fields: Fields, key: 'user' | 'dir', rule: z.ZodType): string | undefined {
  const value = fields[key];
  if (value === undefined) return undefined;
  if (typeof value !== 'string') throw new InvalidJobError(`invalid type supplied for ${key} (expected a string)`, key);
  checkBy(rule, value, key);
  return value;
}

function envOf(value: unknown, text: string): Record<string, string> | undefined {
  if (value === undefined) return undefined;
  if (!isJsonObject(value) || !Object.values(value).every((one) => typeof one === 'string'))
    throw new InvalidJobError('invalid type supplied for env (expected an object of strings)', 'env');
  const twice = duplicateKeyIn(text, 'env');
  if (twice !== undefined)
    throw new InvalidJobError(
      'invalid environment value (duplicate key)',
      'env',
      `'${twice.slice(0, 100)}' is there twice`,
    );
  checkBy(shape.env, value, 'env');
  return value as Record<string, string>;
}

const FILE_COMPLAINTS = {
  'no-prefix': "invalid file contents (expected 'base64:...' or 'raw:...')",
  'not-base64': "invalid file contents (couldn't decode base64 string)",
  'too-large': `invalid file size (must be <= ${MAX_PUSH_FILE_BYTES} bytes)`,
};

function parseFile(value: unknown): Buffer | undefined {
  if (value === undefined) return undefined;
  const bytes = typeof value === 'string' ? parsePushFile(value) : 'no-prefix';
  if (typeof bytes === 'string') throw new InvalidJobError(FILE_COMPLAINTS[bytes], 'file');
  return bytes;
}

function captureOf(value: unknown): boolean {
  if (value !== undefined && typeof value !== 'boolean')
    throw new InvalidJobError('invalid type supplied for capture_output (expected a boolean)', 'capture_output');
  return value ?? false;
}

const notNumber = (key: string) => new InvalidJobError(`invalid type supplied for ${key} (expected a number)`, key);

/** Checks a value by the rule of POST /push-jobs. */
function checkBy(rule: z.ZodType, value: unknown, key: string): void {
  const { error } = rule.safeParse(value);
  if (error !== undefined) throw new InvalidJobError(`invalid ${key} supplied`, key, error.issues[0]?.message);
}
