/** The environment that a caller gives to a command. */
import { MAX_COMMAND_VARIABLES } from '../limits.ts';
import { isVariableName } from '../variable-name.ts';
import { textMap } from './contract/rules.ts';

/** The way to the command leads through a shell, which loses a variable with another name. */
export const commandEnvironment = textMap(MAX_COMMAND_VARIABLES).refine((env) => findLostVariable(env) === undefined, {
  error: ({ input }) => issueOf(findLostVariable(input as Record<string, string>) ?? ''),
});

const MAX_SHOWN_CHARS = 100;

const findLostVariable = (env: Readonly<Record<string, string>>): string | undefined =>
  Object.keys(env).find((name) => !isVariableName(name));

const issueOf = (name: string): string =>
  `value has the variable ${JSON.stringify(name.slice(0, MAX_SHOWN_CHARS))}, whose name no shell can export`;
