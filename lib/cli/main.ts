/**
 * `cnapi`: the command line. Reads the arguments, runs one command, reports an error in one line,
 * and ends with the command's exit code.
 */
import { CommanderError } from 'commander';
import { Invocation } from './invocation/command-runner.ts';
import { helpWidthOf } from './invocation/help-text.ts';
import { hintOfUsage } from './invocation/usage-hint.ts';
import { createProgram, helpOf } from './program.ts';
import { errorReportOf, errorReportText } from './terminal/error-report.ts';
import { safeJson } from './terminal/escape-controls.ts';
import { flushed } from './terminal/output.ts';
import { ignoreAsCalled } from './terminal/signals.ts';
import { EXIT } from './terminal/usage-error.ts';

async function main(argv: readonly string[]): Promise<number> {
  const { args, rest } = split(argv);
  const invocation = new Invocation(rest);
  const program = createProgram(invocation, helpWidthOf(process.stdout.isTTY ? process.stdout.columns : undefined));
  try {
    if (args.length === 0) {
      process.stdout.write(helpOf(program));
      return EXIT.usage;
    }
    await program.parseAsync(args, { from: 'user' });
    return invocation.exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return usage(error, hintOfUsage(error, program, argv));
    return complain(error, args.includes('--json'));
  } finally {
    invocation.context?.close();
  }
}

/** The words after the first `--` belong to the command that is to be run; they are not parsed. */
function split(argv: readonly string[]): { args: string[]; rest: string[] | undefined } {
  const at = argv.indexOf('--');
  return at < 0 ? { args: [...argv], rest: undefined } : { args: argv.slice(0, at), rest: argv.slice(at + 1) };
}

/** The user asked for help, or the command line is wrong. */
function usage(error: CommanderError, hint: string): number {
  if (error.exitCode === 0 || error.code === 'commander.help') return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  process.stderr.write(`cnapi: ${error.message.replace(/^error: /, '')}\n  ${hint}\n`);
  return EXIT.usage;
}

function complain(error: unknown, isJson: boolean): number {
  const report = errorReportOf(error);
  const { exitCode, ...about } = report;
  process.stderr.write(isJson ? `${safeJson({ error: about })}\n` : `cnapi: ${errorReportText(report)}\n`);
  return exitCode;
}

ignoreAsCalled(process.env);
const exitCode = await main(process.argv.slice(2));
// A pipe takes 64 KiB at once; without waiting, an exit would drop the rest.
await flushed();
process.exit(exitCode);
