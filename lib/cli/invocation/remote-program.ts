/**
 * The command that a user wants to run, with its environment, as the API takes it. Used by `cnapi
 * exec` and by the options of push jobs.
 */
import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { MAX_PUSH_COMMAND_CHARS, MAX_PUSH_FILE_BYTES } from '../../protocol/limits.ts';
import { isVariableName } from '../../protocol/variable-name.ts';
import { UsageError, unreadable } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';

/** Words after --, or a script and its arguments. */
interface Program {
  words: readonly string[];
  script: string | undefined;
}

export interface Variables {
  env: Record<string, string>;
  /** Names of those that nobody but the agents may see. */
  secrets: string[];
}

const MAX_SCRIPT_BYTES = 1024 * 1024;
/** The words are passed as arguments, so no shell splits them. */
const RUN_WORDS = '#!/bin/sh\nexec "$@"\n';

/** @throws UsageError */
export function parseVariables(
  { env = [], secretEnv = [] }: { env?: readonly string[]; secretEnv?: readonly string[] },
  own: NodeJS.ProcessEnv,
): Variables {
  const secrets = secretEnv.map((text) => secretOf(text, own));
  const all = [...env.map((text) => variableOf(text, '--env')), ...secrets];
  return { env: Object.fromEntries(all), secrets: [...new Set(secrets.map(([name]) => name))] };
}

function variableOf(text: string, option: string): [string, string] {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined)
    throw new UsageError(`${option} ${escapeControls(text)} is not NAME=VALUE`);
  // Checked here, because for a single server only the agent would check it, after the start.
  if (!isVariableName(name))
    throw new UsageError(`${option} ${escapeControls(name)}: a shell cannot export a variable of this name`);
  return [name, value];
}

/** NAME=VALUE, or the NAME of a variable of this program. */
function secretOf(text: string, own: NodeJS.ProcessEnv): [string, string] {
  if (text.includes('=')) return variableOf(text, '--secret-env');
  const value = Object.hasOwn(own, text) ? own[text] : undefined;
  if (value === undefined) throw new UsageError(`--secret-env ${escapeControls(text)}: there is no such variable here`);
  return variableOf(`${text}=${value}`, '--secret-env');
}

/** @throws UsageError */
export async function readProgram(words: readonly string[] | undefined, file: string | undefined): Promise<Program> {
  if (file !== undefined) return { words: words ?? [], script: await scriptIn(file) };
  if (words?.[0] === undefined || words[0] === '')
    throw new UsageError(
      'Which command should run? Write it after --, as in cnapi exec web-1 -- uptime, or give --script FILE',
    );
  return { words, script: undefined };
}

async function scriptIn(file: string): Promise<string> {
  const reading = file === '-' ? readAll(process.stdin) : readFile(file, 'utf8');
  const script = await reading.catch(unreadable('--script', file));
  if (script.trim() === '') throw new UsageError(`--script ${file} is empty`);
  if (Buffer.byteLength(script) > MAX_SCRIPT_BYTES) throw new UsageError(`--script ${file} is larger than 1 MiB`);
  return script;
}

/** Params of a task `command_execute`. */
export function buildTaskParams({ words, script }: Program, variables: Variables): Record<string, unknown> {
  const [first, ...others] = words;
  const command =
    script !== undefined
      ? { script, args: [...words] }
      : others.length === 0
        ? { script: `${first}\n` }
        : { script: RUN_WORDS, args: [...words] };
  return { ...command, ...buildVariableParams(variables) };
}

/** The variables as params of a task. */
export function buildVariableParams({ env, secrets }: Variables): Record<string, unknown> {
  return {
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(secrets.length === 0 ? {} : { secret_params: secrets.map((name) => `/env/${escaped(name)}`) }),
  };
}

/** Escapes as a JSON Pointer does (RFC 6901). */
const escaped = (key: string): string => key.replaceAll('~', '~0').replaceAll('/', '~1');

/** The part of a request for a push job. @throws UsageError */
export function buildJobCommand({ words, script }: Program): { command: string; file?: string } {
  const command = script === undefined ? wordsOnly(words) : commandOfScript(script, words);
  if (command.length > MAX_PUSH_COMMAND_CHARS)
    throw new UsageError(
      `The command has more than ${MAX_PUSH_COMMAND_CHARS} characters, the maximum on several servers; use --script FILE`,
    );
  if (script === undefined) return { command };
  if (Buffer.byteLength(script) > MAX_PUSH_FILE_BYTES)
    throw new UsageError(`The script is larger than ${MAX_PUSH_FILE_BYTES} bytes, the maximum on several servers`);
  return { command, file: `raw:${script}` };
}

/** The variables in a request for a push job. */
export function buildJobVariables({ env, secrets }: Variables): {
  env?: Record<string, string>;
  secret_env?: string[];
} {
  return {
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(secrets.length === 0 ? {} : { secret_env: secrets }),
  };
}

/** One word is for sh as it is; several are quoted, so that sh passes them on unchanged. */
export function quoteShellCommand(words: readonly string[]): string {
  const [only = '', ...others] = words;
  return others.length === 0 ? only.trim() : words.map(quoted).join(' ');
}

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

/** Several words run a program, never a command of the shell itself, as they do on one server. */
const wordsOnly = (words: readonly string[]): string =>
  words.length === 1 ? quoteShellCommand(words) : `exec ${quoteShellCommand(words)}`;

/**
 * Names the interpreter as a kernel does: where the file lies, executing files may be forbidden.
 */
function commandOfScript(script: string, words: readonly string[]): string {
  const [, interpreter = '/bin/sh', argument = ''] = /^#![ \t]*([^\s]+)[ \t]*([^\n]*)/.exec(script) ?? [];
  const before = [interpreter, ...(argument.trim() === '' ? [] : [argument.trim()])];
  return ['exec', ...before.map(quoted), '"$CHEF_PUSH_JOB_FILE"', ...words.map(quoted)].join(' ');
}
