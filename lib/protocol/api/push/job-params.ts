/** Parameters of push jobs: servers, quorum, start rate, environment and file. */
import { z } from 'zod';
import { MAX_COMMAND_VARIABLES, MAX_PUSH_ENV_BYTES, MAX_PUSH_FILE_BYTES, MAX_PUSH_NODES } from '../../limits.ts';
import { commandEnvironment } from '../command-environment.ts';
import { isUuid, number, text, textArray } from '../contract/rules.ts';

const MIN_START_RATE = 0.001;
export const startRate = () =>
  number()
    .refine(
      (value) => value >= MIN_START_RATE && value <= MAX_PUSH_NODES,
      `value is not between ${MIN_START_RATE} and ${MAX_PUSH_NODES}`,
    )
    .meta({ minimum: MIN_START_RATE, maximum: MAX_PUSH_NODES });

export const jobServers = z
  .custom<string[]>((value) => reasonNotServers(value) === undefined, {
    error: ({ input }) => reasonNotServers(input) ?? '',
  })
  .transform((values) => values.map((value) => value.toLowerCase()))
  .meta({ type: 'array', items: { type: 'string', format: 'uuid' }, minItems: 1, maxItems: MAX_PUSH_NODES });

function reasonNotServers(value: unknown): string | undefined {
  if (!Array.isArray(value)) return 'value was not an array';
  if (value.length === 0) return 'value is empty: name at least one server';
  if (value.length > MAX_PUSH_NODES) return `value has more than ${MAX_PUSH_NODES} elements`;
  const wrong = value.find((one) => !isUuid(one));
  if (wrong !== undefined) return `${JSON.stringify(wrong).slice(0, 100)} is not a UUID`;
  if (new Set(value.map((one) => String(one).toLowerCase())).size < value.length) return 'value names a server twice';
  return undefined;
}

const PERCENTAGE = /^(100(\.0+)?|[1-9]?\d(\.\d+)?)%$/;

/** A number of nodes, or a percentage. */
export const pushQuorum = z
  .custom<number | string>(
    (value) => (typeof value === 'string' ? PERCENTAGE.test(value) : Number.isInteger(value) && Number(value) >= 1),
    'value is neither a number of nodes nor a percentage such as "80%"',
  )
  .transform((value) => (typeof value === 'number' ? value : { percent: Number(value.slice(0, -1)) }))
  .meta({
    oneOf: [
      { type: 'integer', minimum: 1 },
      { type: 'string', pattern: '^\\d+(\\.\\d+)?%$' },
    ],
  });

export const pushEnvironment = commandEnvironment
  .refine(
    (env) => bytesOf(env) <= MAX_PUSH_ENV_BYTES,
    `value has names and values of more than ${MAX_PUSH_ENV_BYTES} bytes together`,
  )
  .describe(`Environment variables; their names and values have at most ${MAX_PUSH_ENV_BYTES} bytes together`);

export const secretNames = textArray(MAX_COMMAND_VARIABLES).describe(
  'Names of variables in `env` that only the agents may see',
);

const bytesOf = (env: Readonly<Record<string, string>>): number =>
  Object.entries(env).reduce((sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value), 0);

export const pushFile = text()
  .transform((value, context) => {
    const bytes = parsePushFile(value);
    if (typeof bytes !== 'string') return bytes;
    context.addIssue(ISSUES[bytes]);
    return z.NEVER;
  })
  .meta({ type: 'string' });

const ISSUES = {
  'no-prefix': 'value begins with neither "raw:" nor "base64:"',
  'not-base64': 'value is not valid base64 after "base64:"',
  'too-large': `value has more than ${MAX_PUSH_FILE_BYTES} bytes`,
};

/** The file's bytes, or why there are none. */
export function parsePushFile(value: string): Buffer | keyof typeof ISSUES {
  if (value.startsWith('raw:')) return bounded(Buffer.from(value.slice(4)));
  const [, content] = /^base64:((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)$/.exec(value) ?? [];
  if (content !== undefined) return bounded(Buffer.from(content, 'base64'));
  return value.startsWith('base64:') ? 'not-base64' : 'no-prefix';
}

const bounded = (bytes: Buffer) => (bytes.length > MAX_PUSH_FILE_BYTES ? 'too-large' : bytes);
