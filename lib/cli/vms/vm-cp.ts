/**
 * `cnapi vm cp`: copies files between this machine and a VM. The scripts of a copy run in the VM.
 */
import type { Command } from 'commander';
import type { Params } from '../../client/request.ts';
import { streamContracts } from '../../protocol/api/streams.ts';
import { copyCommand } from '../copy/copy-command.ts';
import type { OtherEnd } from '../copy/copy-files.ts';
import { startStreamTask } from '../exec/stream-task.ts';
import type { CommandRunner } from '../invocation/command-runner.ts';
import { findVm } from './vm-lookup.ts';

const VMS: OtherEnd = {
  where: 'in a VM',
  word: 'VM',
  async starterOf(context, name) {
    const { server_uuid, uuid } = await findVm(context.client, name);
    return ({ script, args }, io) => {
      const create = (stream: string) =>
        context.client.ask(streamContracts.StartVmExec, {
          server_uuid,
          vm_uuid: uuid,
          stream,
          args: ['sh', '-c', script, 'sh', ...args],
        } as Params<typeof streamContracts.StartVmExec>);
      return startStreamTask(context, { serverUuid: server_uuid, create }, io);
    };
  },
};

export const vmCpCommand = (runner: CommandRunner): Command =>
  copyCommand(runner, {
    noun: 'VM',
    names: 'its uuid or alias',
    text: `The copy runs in the VM, as the user of its own program, and a relative path begins in the directory of that program. It needs the \
program sh in the VM, the usual small ones and, with -r, tar; those of BusyBox will do.`,
    examples: [
      'cnapi vm cp nginx.conf web:/etc/nginx/',
      'cnapi vm cp web:/var/log/messages .',
      'cnapi vm cp /srv/site web:/srv/site --recursive',
    ],
    other: VMS,
  });
