/** `cnapi job abort`: changes to a push job that goes on, or its end. */
import { Command } from 'commander';
import { pushJobContracts } from '../../protocol/api/push-jobs.ts';
import { type CommandRunner, examples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServers } from '../lookup/find.ts';
import { findJob } from '../push/find-job.ts';

export function abortCommand(runner: CommandRunner): Command {
  const command = new Command('abort')
    .description(
      'Ends a push job, or only its nodes that are named: nothing more starts, and running commands are stopped.',
    )
    .argument('<job>', 'id, or the beginning of one')
    .argument('[server...]', 'only on these servers; the job goes on. Uuids, beginnings of them, or hostnames')
    .option('--soft', 'let running commands end')
    .action(runner.action(abort));
  return examples(command, ['cnapi job abort c0ff', 'cnapi job abort c0ff --soft', 'cnapi job abort c0ff web-1 web-2']);
}

async function abort(context: Context, [text, names]: readonly unknown[], { soft }: { soft?: boolean }): Promise<void> {
  const { client, output } = context;
  const id = await findJob(context, String(text));
  const servers = await findServers(client, names as string[]);
  const job = await client.ask(pushJobContracts.AbortPushJob, {
    id,
    ...(soft ? { soft: 'true' } : {}),
    ...(servers.length === 0 ? {} : { nodes: servers.map(({ uuid }) => uuid) }),
  });
  if (output.json) return output.document(job);
  if (servers.length === 0) output.line(`${id} is to be aborted`);
  else output.line(`${id} is to be aborted on ${servers.length} server${servers.length === 1 ? '' : 's'}; it goes on`);
}
