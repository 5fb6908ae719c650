/** The environment that a push job gives its command. */
import { MAX_COMMAND_VARIABLES, MAX_PUSH_ENV_BYTES } from '../limits.ts';
import { textArray, textMap } from './rules.ts';

export const pushEnvironment = textMap(MAX_COMMAND_VARIABLES)
  // It would be stored, but JavaScript objects lose it on the way to the command.
  .refine((env) => !Object.hasOwn(env, '__proto__'), 'value has a variable named __proto__')
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
