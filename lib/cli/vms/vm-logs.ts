/** `cnapi vm logs`: what the program of a VM has printed. */
import { Command } from 'commander';
import { streamContracts } from '../../protocol/api/streams.ts';
import { interactiveExec } from '../exec/interactive-exec.ts';
import { LogCursor } from '../exec/log-cursor.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { parseCount } from '../terminal/count.ts';
import { findVm, VM_TEXT } from './vm-lookup.ts';

interface Options {
  follow?: boolean;
  tail?: string;
}

const MORE = `
Standard output and standard error of the VM's own program are written to those of this program, unchanged. The server keeps the \
newest part of the log, also of a VM that has stopped, until the VM is deleted. Several lines of both in the same moment may be \
in another order.

With -f this program continues until the VM stops or is deleted, and ends at Ctrl-C. If an instance or the agent ends meanwhile, it \
continues where it was. When the server removes lines faster than this program \
reads them, stderr says so.
`;

export function vmLogsCommand(runner: CommandRunner): Command {
  const command = new Command('logs')
    .description('Shows what the program of a VM has printed.')
    .argument('<vm>', VM_TEXT)
    .option('-f, --follow', 'show what it prints from now on, too')
    .option('--tail <lines>', 'begin with this number of lines at the end; 0 with -f: only new ones')
    .action(runner.action(vmLogs));
  return withExamples(withExplanation(command, MORE), ['cnapi vm logs web --tail 100', 'cnapi vm logs web --follow']);
}

async function vmLogs(context: Context, [vm]: readonly unknown[], { follow, tail }: Options): Promise<number> {
  const { client, output } = context;
  if (output.json) throw new UsageError('cnapi vm logs does not work with --json');
  const lines = tail === undefined || tail === '0' ? tail : parseCount(tail, '--tail');
  const { server_uuid, uuid } = await findVm(client, String(vm));
  const cursor = new LogCursor();
  return interactiveExec(context, {
    ...(follow === true && { cursor }),
    serverUuid: server_uuid,
    interactive: false,
    tty: false,
    create: (stream) =>
      client.ask(streamContracts.StartVmLogs, {
        server_uuid,
        vm_uuid: uuid,
        stream,
        ...(follow === true && { follow }),
        ...(lines !== undefined && cursor.resume === undefined && { tail: Number(lines) }),
        ...(cursor.resume !== undefined && { resume: cursor.resume }),
      }),
  });
}
