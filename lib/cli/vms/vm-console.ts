/** `cnapi vm console`: the terminal in which the program of a VM runs. */
import { Command } from 'commander';
import { streamContracts } from '../../protocol/api/streams.ts';
import { interactiveExec } from '../exec/interactive-exec.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { findVm, VM_TEXT } from './vm-lookup.ts';

interface Options {
  readOnly?: boolean;
}

const MORE = `
A VM has a console if its own program runs in a terminal: cnapi vm create SERVER --tty, or docker:tty in its internal_metadata. The \
console exists as long as the VM runs, also while nobody is attached and while the agent restarts. It first shows what the program \
has printed last.

Several callers may be attached; all see the output. What you type goes to the program, and whoever was attached before only \
reads from then on and is told so. With --read-only you change neither. Ctrl-C and Ctrl-D go to the program. Type ~. at the \
beginning of a line to leave; the VM runs on. ~~ at the beginning of a line sends one ~. With --read-only, Ctrl-C leaves.

In a pipe, the input is sent as it is, and this program shows the output until the VM stops.

Exit codes: 0 if you left or the VM has stopped; 1 if the VM has no console or does not run, or the connection broke; 2 wrong usage, \
or an unknown VM; 3 no instance answered; 128 + N when signal N ended this program.
`;

export function vmConsoleCommand(runner: CommandRunner): Command {
  const command = new Command('console')
    .description('Attaches to the terminal in which the program of a VM runs.')
    .argument('<vm>', VM_TEXT)
    .option('--read-only', 'only read; another caller goes on writing')
    .action(runner.action(vmConsole));
  return withExamples(withExplanation(command, MORE), ['cnapi vm console web', 'cnapi vm console web --read-only']);
}

async function vmConsole(context: Context, [vm]: readonly unknown[], { readOnly = false }: Options): Promise<number> {
  const { client, output, streams } = context;
  if (output.json) throw new UsageError('cnapi vm console does not work with --json');
  const { server_uuid, uuid } = await findVm(client, String(vm));
  return interactiveExec(context, {
    serverUuid: server_uuid,
    interactive: !readOnly,
    tty: !readOnly && streams.stdin?.isTTY === true && streams.stdout.isTTY === true,
    exitWhenLeft: EXIT.ok,
    whenLost: `the VM runs on: cnapi vm console ${String(vm)}`,
    create: (stream, terminal) =>
      client.ask(streamContracts.StartVmConsole, {
        server_uuid,
        vm_uuid: uuid,
        stream,
        ...(readOnly && { read_only: true }),
        ...(terminal !== undefined && { terminal }),
      }),
  });
}
