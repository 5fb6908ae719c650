/** How commands are run: created by main.ts, passed to every file of commands/. */
import type { Command } from 'commander';
import type { Context } from './context.ts';

/** Returns the exit code; undefined means 0. */
export type Work<Options> = (
  context: Context,
  args: readonly (string | string[] | undefined)[],
  options: Options,
) => Promise<number | undefined> | Promise<void>;

export interface Runner {
  /** Turns `work` into a commander action. With `rest`, the command accepts words after `--`. */
  action<Options>(work: Work<Options>, takes?: { rest: boolean }): (...given: unknown[]) => Promise<void>;
}

/** Adds examples at the end of a help text. */
export function examples(command: Command, lines: readonly string[]): Command {
  return command.addHelpText('after', `\nExamples:\n${lines.map((line) => `  $ ${line}`).join('\n')}\n`);
}

/** Collects the values of an option that may be given several times. */
export const repeated = (value: string, others: string[] | undefined): string[] => [...(others ?? []), value];
