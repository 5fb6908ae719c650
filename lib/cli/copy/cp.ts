/** `cnapi cp`: copies files between this machine and a server. */
import type { Command } from 'commander';
import { startExec } from '../exec/stream-task.ts';
import type { CommandRunner } from '../invocation/command-runner.ts';
import { findServer } from '../lookup/find.ts';
import { copyCommand } from './copy-command.ts';
import type { OtherEnd } from './copy-files.ts';

const SERVERS: OtherEnd = {
  where: 'on a server',
  word: 'SERVER',
  async starterOf(context, name) {
    const { uuid: serverUuid } = await findServer(context.client, name);
    return (params, io) => startExec(context, { serverUuid, params }, io);
  },
};

export const cpCommand = (runner: CommandRunner): Command =>
  copyCommand(runner, {
    noun: 'server',
    names: 'a uuid, the beginning of one, or a hostname',
    text: 'The copy runs as the user of the agent.',
    examples: [
      'cnapi cp nginx.conf web-1:/etc/nginx/',
      'cnapi cp web-1:/var/log/syslog .',
      'cnapi cp /srv/site web-1:/srv/site --recursive',
    ],
    other: SERVERS,
  });
