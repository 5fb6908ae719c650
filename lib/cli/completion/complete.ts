/**
 * The words that may come next on a command line: from the command table, or from the fleet for ids
 * and names.
 */
import type { Argument, Command, Option } from 'commander';
import { EVENT_KINDS } from '../../protocol/api/events.ts';

/** The kind of names to request from the fleet. */
const WANTED = [
  'server',
  'task',
  'instance',
  'ticket',
  'token',
  'job',
  'schedule',
  'workflow',
  'server-group',
] as const;
export type CompletionKind = (typeof WANTED)[number];

/** What may come next: words, or names of this kind, or both. */
type Completion = { words?: readonly string[]; wanted?: CompletionKind };

const NOTHING: Completion = { words: [] };

/** `words` are the words after `cnapi`; the user is typing the last one. Pure. */
export function complete(program: Command, words: readonly string[]): Completion {
  const typed = words.at(-1) ?? '';
  const before = words.slice(0, -1);
  if (before.includes('--')) return NOTHING;
  const { command, positionals, open } = walk(program, before);
  if (open !== undefined) return valuesOf(open, typed);
  if (typed.startsWith('-')) return { words: startingWith(optionsOf(command, program), typed) };
  const subcommands = visibleCommands(command).map((one) => one.name());
  const argument = argumentAt(command, positionals);
  if (subcommands.length > 0 && positionals === 0)
    return { ...(argument && ofFleet(argument.name())), words: startingWith(subcommands, typed) };
  if (argument === undefined) return NOTHING;
  if (argument.argChoices !== undefined) return { words: startingWith(argument.argChoices, typed) };
  return ofFleet(argument.name());
}

/**
 * Follows the words: returns the command, the number of its arguments so far, and the option that
 * expects a value.
 */
function walk(program: Command, words: readonly string[]) {
  let command = program;
  let positionals = 0;
  let open: Option | undefined;
  for (const word of words) {
    if (open !== undefined) {
      open = undefined;
      continue;
    }
    if (word.startsWith('-')) {
      const option = [...command.options, ...program.options].find(
        (candidate) => candidate.long === word || candidate.short === word,
      );
      if (option?.required === true) open = option;
      continue;
    }
    const next = positionals === 0 ? command.commands.find((candidate) => candidate.name() === word) : undefined;
    if (next === undefined) positionals++;
    else command = next;
  }
  return { command, positionals, open };
}

function valuesOf(option: Option, typed: string): Completion {
  // `--kind` has no choices of its own, because it also takes several kinds with commas.
  const choices = option.argChoices ?? (option.long === '--kind' ? EVENT_KINDS : undefined);
  if (choices !== undefined) return { words: startingWith(choices, typed) };
  const [, value = ''] = /<([^>.]+)/.exec(option.flags) ?? [];
  return ofFleet(value);
}

/** `name`: of an argument, or of an option's value, such as `server`, or `query|server`. */
function ofFleet(name: string): Completion {
  const wanted = WANTED.find((kind) => name.split('|').includes(kind));
  return wanted === undefined ? NOTHING : { wanted };
}

function argumentAt(command: Command, positionals: number): Argument | undefined {
  const { registeredArguments } = command;
  const last = registeredArguments.at(-1);
  return registeredArguments[positionals] ?? (last?.variadic === true ? last : undefined);
}

function optionsOf(command: Command, program: Command): string[] {
  const own = command === program ? [] : command.options;
  return [...own, ...program.options].flatMap(({ long, hidden }) => (long && !hidden ? [long] : [])).concat('--help');
}

function visibleCommands(command: Command): Command[] {
  return command.createHelp().visibleCommands(command);
}

export const startingWith = (words: readonly string[], typed: string): string[] =>
  words.filter((word) => word.startsWith(typed));

/**
 * Whether a shell takes the word without quoting. Other words are not offered: a hostile hostname
 * must not become a command.
 */
export const isPlainWord = (word: string): boolean => /^[A-Za-z0-9][A-Za-z0-9._:-]{0,252}$/.test(word);
