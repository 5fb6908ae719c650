/** `cnapi job watch`: follows a push job that somebody started, here or elsewhere. */
import { Command } from 'commander';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findPushJob } from '../lookup/find-push-job.ts';
import { WithheldError } from '../terminal/command-errors.ts';
import { watchJob } from './follow-job.ts';

const MORE = `
It shows the progress of the job and the output of its nodes from the beginning, each line with the name of its server, until the \
job ends. Ctrl-C, or a lost terminal, ends this program and not the job: cnapi job abort ends a job.

Exit codes: as for cnapi job start.
`;

export function jobWatchCommand(runner: CommandRunner): Command {
  const command = new Command('watch')
    .description('Follows a push job to its end, with the output of all its nodes.')
    .argument('<job>', 'id, or the beginning of one')
    .action(runner.action(watch));
  return withExamples(withExplanation(command, MORE), ['cnapi job watch c0ff']);
}

async function watch(context: Context, [text]: readonly unknown[]): Promise<number> {
  const { client, output } = context;
  const job = await client.ask(pushJobContracts.GetPushJob, { id: await findPushJob(context, String(text)) });
  if (job.withheld && !output.json) throw new WithheldError('The command of a push job, and what it writes,');
  return watchJob(context, job);
}
