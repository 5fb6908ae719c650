/** The command that `cnapi cp` and `cnapi vm cp` are: its arguments and its help. */
import { Command } from 'commander';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { COPY_TEXT, type CopyOptions, copyFiles, type OtherEnd } from './copy-files.ts';

interface CopyCommand {
  /** `server`. */
  noun: string;
  /** What the user may write for `other.word`. */
  names: string;
  /** Sentences for the help: the user as whom a copy runs there, and what it needs. */
  text: string;
  examples: readonly string[];
  other: OtherEnd;
}

export function copyCommand(runner: CommandRunner, { noun, names, text, examples, other }: CopyCommand): Command {
  const { where, word } = other;
  const cp = (context: Context, paths: readonly unknown[], options: CopyOptions): Promise<number> =>
    copyFiles(context, paths, { ...options, other });
  const command = new Command('cp')
    .description(`Copies a file or a directory from or to a ${noun}.`)
    .usage('[options] <source> <target>')
    .argument('<source>', `PATH or ${word}:PATH`)
    .argument('<target>', `${word}:PATH or PATH`)
    .option('-r, --recursive', 'copy what a directory holds')
    .action(runner.action(cp));
  const explanation = `
A path ${where} is written ${word}:PATH; ${word} is ${names}. One of the two paths is ${where}. A local path with a colon is written \
./a:b. A target that is a directory, or ends in /, takes the file under its own name.

${COPY_TEXT}

${text} It is a task (cnapi tasks), whose content is not recorded.
`;
  return withExamples(withExplanation(command, explanation), examples);
}
