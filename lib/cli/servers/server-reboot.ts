/** `cnapi server reboot`: reboots a server by a workflow job. */
import { Command } from 'commander';
import { workflowContracts } from '../../protocol/api/workflows.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { showCreatedWorkflow } from '../workflows/follow-workflow.ts';

const MORE = `
It prints the uuid of the workflow job, which ends when the server is back with another boot time. The agent of the server must \
have been started with --allow-reboot. While the job has not ended, the same command gets the same job. With --wait, Ctrl-C or a \
lost terminal ends this program and not the job.

Exit codes with --wait: 0 the server is back; 1 the job failed or was cancelled.
`;

interface Options {
  drain?: boolean;
  wait?: boolean;
}

export function rebootServerCommand(runner: CommandRunner): Command {
  const command = new Command('reboot')
    .description('Reboots a server.')
    .argument('<server>', 'uuid, the beginning of one, or hostname')
    .option('--drain', 'first pause its agent, and wait up to 15 minutes until its tasks have ended')
    .option('--wait', 'wait until the server is back, with the progress on stderr')
    .action(runner.action(reboot));
  return withExamples(withExplanation(command, MORE), ['cnapi server reboot web-1 --drain --wait']);
}

async function reboot(context: Context, [name]: readonly unknown[], { drain, wait }: Options): Promise<number> {
  const { client } = context;
  const { uuid: server_uuid } = await findServer(client, String(name));
  const answer = await client.documents(workflowContracts.RebootServer, { server_uuid, drain });
  return showCreatedWorkflow(context, { uuid: String(answer.job_uuid), wait });
}
