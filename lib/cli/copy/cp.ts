/** `cnapi cp`: copies files between this machine and a server. */
import { Command } from 'commander';
import { startExec } from '../exec/stream-task.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { COPY_TEXT, type CopyOptions, copyFiles, type OtherEnd } from './copy-files.ts';

const MORE = `
A path on a server is written SERVER:PATH; SERVER is a uuid, the beginning of one, or a hostname. One of the two paths is on a \
server. A local path with a colon is written ./a:b. A target that is a directory, or ends in /, takes the file under its own name.

${COPY_TEXT}

The copy runs as the user of the agent. It is a task (cnapi tasks), whose content is not recorded.
`;

export function cpCommand(runner: CommandRunner): Command {
  const command = new Command('cp')
    .description('Copies a file or a directory from or to a server.')
    .usage('[options] <source> <target>')
    .argument('<source>', 'PATH or SERVER:PATH')
    .argument('<target>', 'SERVER:PATH or PATH')
    .option('-r, --recursive', 'copy what a directory holds')
    .action(runner.action(cp));
  return withExamples(withExplanation(command, MORE), [
    'cnapi cp nginx.conf web-1:/etc/nginx/',
    'cnapi cp web-1:/var/log/syslog .',
    'cnapi cp /srv/site web-1:/srv/site --recursive',
  ]);
}

const SERVERS: OtherEnd = {
  in: 'on a server, as SERVER:PATH',
  async starterOf(context, name) {
    const { uuid: serverUuid } = await findServer(context.client, name);
    return (params, io) => startExec(context, { serverUuid, params }, io);
  },
};

const cp = (context: Context, paths: readonly unknown[], options: CopyOptions): Promise<number> =>
  copyFiles(context, paths, { ...options, other: SERVERS });
