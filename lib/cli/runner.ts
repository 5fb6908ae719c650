/** How commands come to be run: made by main.ts, given to every file of commands/. */
import type { Command } from 'commander';
import type { Context } from './context.ts';

/** The exit code; nothing is 0. */
export type Work<Options> = (
  context: Context,
  args: readonly (string | string[] | undefined)[],
  options: Options,
) => Promise<number | undefined> | Promise<void>;

export interface Runner {
  /** Makes a commander action of it. `takesRest`: what comes after `--` is its own. */
  action<Options>(work: Work<Options>, takes?: { rest: boolean }): (...given: unknown[]) => Promise<void>;
}

/** The examples at the end of a help text. */
export function examples(command: Command, lines: readonly string[]): Command {
  return command.addHelpText('after', `\nExamples:\n${lines.map((line) => `  $ ${line}`).join('\n')}\n`);
}

/** For an option that may be given several times. */
export const repeated = (value: string, others: string[] | undefined): string[] => [...(others ?? []), value];
