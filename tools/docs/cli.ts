/** Generates docs/cli.md from the command table, so that it matches the help texts. Pure. */
import type { Command } from 'commander';
import { commandPath } from '../../lib/cli/invocation/command-runner.ts';
import { allCommands, buildHelp } from '../../lib/cli/program.ts';

const HEAD = `# The command line

This page is generated from the help of \`cnapi\` by \`npm run docs\`; a test compares the two.

\`tools/cnapi\` in a checkout is the program. \`ln -s "$PWD/tools/cnapi" /usr/local/bin/cnapi\` makes it
a command, and so does \`npm link\`; inside the checkout \`npx cnapi\` runs it. It does not change the
working directory.
`;

export function cliPage(program: Command): string {
  const commands = allCommands(program).filter(
    (command) => !command.name().startsWith('__') && command.name() !== 'help',
  );
  return [HEAD, section(program, 'cnapi'), ...commands.map((one) => section(one, commandPath(one)))].join('\n');
}

function section(command: Command, title: string): string {
  return `## ${title}\n\n\`\`\`\n${buildHelp(command).trimEnd()}\n\`\`\`\n`;
}
