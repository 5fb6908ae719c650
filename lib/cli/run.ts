/**
 * One call of the command line: reads the arguments, runs one command, and reports an error in one
 * line. Called by main.ts for the process, and by tests with streams of their own.
 */
import { CommanderError } from 'commander';
import { type CliEnvironment, Invocation } from './invocation/command-runner.ts';
import { helpWidthOf } from './invocation/help-text.ts';
import { usageHint } from './invocation/usage-hint.ts';
import { allCommands, buildHelp, createProgram } from './program.ts';
import { EXIT } from './terminal/command-errors.ts';
import { buildErrorReport, errorReportText } from './terminal/error-report.ts';
import { safeJson } from './terminal/escape-controls.ts';
import { flushOutput, reportLostOutput } from './terminal/output.ts';
import type { OutputStream } from './terminal/streams.ts';

/** Returns the exit code after all output is written. */
export async function runCli(argv: readonly string[], environment: CliEnvironment): Promise<number> {
  const hasLost = reportLostOutput(environment.streams);
  const exitCode = await run(argv, environment);
  // A pipe takes 64 KiB in one go; without waiting, an exit would drop the rest.
  await flushOutput(environment.streams);
  return exitCode === EXIT.ok && hasLost() ? EXIT.failed : exitCode;
}

async function run(argv: readonly string[], environment: CliEnvironment): Promise<number> {
  const { stdout, stderr } = environment.streams;
  const { args, rest } = split(argv);
  const invocation = new Invocation(rest, environment);
  const program = createProgram(invocation, helpWidthOf(stdout.isTTY ? stdout.columns : undefined));
  for (const command of [program, ...allCommands(program)])
    command.configureOutput({ writeOut: (text) => stdout.write(text) });
  try {
    if (args.length === 0) {
      stdout.write(buildHelp(program));
      return EXIT.usage;
    }
    await program.parseAsync(args, { from: 'user' });
    return invocation.exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return usage(error, usageHint(error, program, argv), stderr);
    return complain(error, args.includes('--json'), stderr);
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
function usage(error: CommanderError, hint: string, stderr: OutputStream): number {
  if (error.exitCode === 0 || error.code === 'commander.help') return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  stderr.write(`cnapi: ${error.message.replace(/^error: /, '')}\n  ${hint}\n`);
  return EXIT.usage;
}

function complain(error: unknown, isJson: boolean, stderr: OutputStream): number {
  const report = buildErrorReport(error);
  const { exitCode, ...about } = report;
  stderr.write(isJson ? `${safeJson({ error: about })}\n` : `cnapi: ${errorReportText(report)}\n`);
  return exitCode;
}
