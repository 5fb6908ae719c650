/** What to do about a wrong command line: the line below the error. Pure. */
import type { Command, CommanderError } from 'commander';

const HELP = 'Try cnapi --help, or cnapi COMMAND --help';
/** What commander reports when the command to run is not separated by `--`. */
const UNSEPARATED = ['commander.unknownOption', 'commander.excessArguments'];

export function hintOfUsage({ code }: Pick<CommanderError, 'code'>, program: Command, argv: readonly string[]): string {
  if (!UNSEPARATED.includes(code) || argv.includes('--')) return HELP;
  const command = program.commands.find((each) => argv.includes(each.name()) && takesCommand(each));
  if (command === undefined) return HELP;
  const [first = ''] = argv.slice(argv.indexOf(command.name()) + 1);
  if (first === '' || first.startsWith('-')) return HELP;
  return `Write the command to run after --: cnapi ${command.name()} ${command.usage().replace('[options] ', '')}`;
}

const takesCommand = (command: Command): boolean => command.usage().includes(' -- ');
