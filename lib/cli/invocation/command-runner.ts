/** How commands are run: created by run.ts, passed to each command of program.ts. */
import type { Command } from 'commander';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import type { Streams } from '../terminal/streams.ts';
import { type Context, createContext, type GlobalOptions } from './context.ts';
import { HELP_WIDTH, wrapped } from './help-text.ts';

/** Returns the exit code; undefined means 0. */
type Work<Options> = (
  context: Context,
  args: readonly (string | string[] | undefined)[],
  options: Options,
) => Promise<number | undefined> | Promise<void>;

export interface CommandRunner {
  /** Turns `work` into a commander action. With `rest`, the command accepts words after `--`. */
  action<Options>(work: Work<Options>, takes?: { rest: boolean }): (...given: unknown[]) => Promise<void>;
}

/** Runs no command. Used to print help texts, and to check whether a command line is accepted. */
export const parseOnly: CommandRunner = { action: () => async () => undefined };

/** What a call is given beside its arguments. */
export interface CliEnvironment {
  env: NodeJS.ProcessEnv;
  streams: Streams;
}

/** One call of `cnapi`: what its command leaves to run.ts. */
export class Invocation implements CommandRunner {
  exitCode: number = EXIT.ok;
  context: Context | undefined;
  readonly #rest: readonly string[] | undefined;
  readonly #environment: CliEnvironment;

  /** `rest`: the words after `--`. */
  constructor(rest: readonly string[] | undefined, environment: CliEnvironment) {
    this.#rest = rest;
    this.#environment = environment;
  }

  action<Options>(work: Work<Options>, { rest: takesRest } = { rest: false }) {
    return async (...given: unknown[]): Promise<void> => {
      const command = given.at(-1) as Command;
      if (!takesRest && this.#rest !== undefined)
        throw new UsageError(`${command.name()} takes nothing after --; see ${commandPath(command)} --help`);
      const options = command.optsWithGlobals<Options & GlobalOptions>();
      this.context = createContext(options, { ...this.#environment, rest: this.#rest });
      this.exitCode = (await work(this.context, command.processedArgs, options)) ?? EXIT.ok;
    };
  }
}

/** Returns a command as the user calls it, e.g. `cnapi token create`. */
export function commandPath(command: Command): string {
  return command.parent === null ? command.name() : `${commandPath(command.parent)} ${command.name()}`;
}

/** Adds paragraphs after the options of a help text. A line of `text` is a paragraph. */
export function withExplanation(command: Command, text: string): Command {
  return command.addHelpText('after', ({ command: shown }) =>
    wrapped(text.trimEnd(), shown.configureHelp().helpWidth ?? HELP_WIDTH),
  );
}

/** Adds examples at the end of a help text. */
export function withExamples(command: Command, lines: readonly string[]): Command {
  return command.addHelpText('after', `\nExamples:\n${lines.map((line) => `  $ ${line}`).join('\n')}\n`);
}

/** Collects the values of an option that may be given several times. */
export const collectValues = (value: string, others: string[] | undefined): string[] => [...(others ?? []), value];
