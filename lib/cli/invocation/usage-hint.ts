/** What to do about a wrong command line: the line below the error. Pure. */
import type { Command, CommanderError } from 'commander';
import { commandPath } from './command-runner.ts';

/** What commander reports when the command to run is not separated by `--`. */
const UNSEPARATED = ['commander.unknownOption', 'commander.excessArguments'];

export function usageHint({ code }: Pick<CommanderError, 'code'>, program: Command, argv: readonly string[]): string {
  const command = calledCommand(program, argv);
  const help = command === program ? 'Try cnapi --help, or cnapi COMMAND --help' : `Try ${commandPath(command)} --help`;
  if (!UNSEPARATED.includes(code) || argv.includes('--')) return help;
  // A misspelt option before all words belongs to cnapi.
  const hasWords = command !== program && !argv[argv.indexOf(command.name()) + 1]?.startsWith('-');
  if (!takesCommand(command) || !(hasWords || argv.includes('--all'))) return help;
  return `Write the command to run after --: ${commandPath(command)} ${command.usage().replace('[options] ', '')}`;
}

/** The innermost command that the words name. */
function calledCommand(program: Command, argv: readonly string[]): Command {
  let command = program;
  for (const word of argv) command = command.commands.find((each) => each.name() === word) ?? command;
  return command;
}

const takesCommand = (command: Command): boolean => command.usage().includes(' -- ');
