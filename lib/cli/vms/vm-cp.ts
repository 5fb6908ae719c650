/** `cnapi vm cp`: copies files between this machine and a VM. The scripts of a copy run in the VM. */
import { Command } from 'commander';
import type { Params } from '../../client/request.ts';
import { streamContracts } from '../../protocol/api/streams.ts';
import { COPY_TEXT, type CopyOptions, copyFiles, type OtherEnd } from '../copy/copy-files.ts';
import { startStreamTask } from '../exec/stream-task.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findVm } from './vm-lookup.ts';

const MORE = `
A path in a VM is written VM:PATH; VM is its uuid or alias. One of the two paths is in a VM. A local path with a colon is written \
./a:b. A target that is a directory, or ends in /, takes the file under its own name.

${COPY_TEXT}

The copy runs in the VM, as the user of its own program, and a relative path begins in the directory of that program. It needs the \
program sh in the VM, the usual small ones and, with -r, tar; those of BusyBox will do. It is a task (cnapi tasks), whose content is not recorded.
`;

export function vmCpCommand(runner: CommandRunner): Command {
  const command = new Command('cp')
    .description('Copies a file or a directory from or to a VM.')
    .usage('[options] <source> <target>')
    .argument('<source>', 'PATH or VM:PATH')
    .argument('<target>', 'VM:PATH or PATH')
    .option('-r, --recursive', 'copy what a directory holds')
    .action(runner.action(vmCp));
  return withExamples(withExplanation(command, MORE), [
    'cnapi vm cp nginx.conf web:/etc/nginx/',
    'cnapi vm cp web:/var/log/messages .',
    'cnapi vm cp /srv/site web:/srv/site --recursive',
  ]);
}

const VMS: OtherEnd = {
  in: 'in a VM, as VM:PATH',
  async starterOf(context, name) {
    const { server_uuid, uuid } = await findVm(context.client, name);
    return ({ script, args }, io) => {
      const create = (stream: string) =>
        context.client.ask(streamContracts.StartVmExec, {
          ...{ server_uuid, vm_uuid: uuid, stream },
          args: ['sh', '-c', script, 'sh', ...args],
        } as Params<typeof streamContracts.StartVmExec>);
      return startStreamTask(context, { serverUuid: server_uuid, create }, io);
    };
  },
};

const vmCp = (context: Context, paths: readonly unknown[], options: CopyOptions): Promise<number> =>
  copyFiles(context, paths, { ...options, other: VMS });
