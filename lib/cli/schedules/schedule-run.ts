/** `cnapi schedule run`: the job of a schedule now, beside its times. */
import { Command } from 'commander';
import { ApiError } from '../../client/client-errors.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findSchedule } from '../lookup/find-schedule.ts';
import { followStarted } from '../push-jobs/follow-job.ts';
import { RefusedError } from '../terminal/command-errors.ts';
import { errorReasonOf, isWrongValue } from '../terminal/error-report.ts';

interface RunOptions {
  capture?: boolean;
  detach?: boolean;
}

const MORE = `
The job runs in your name, not in the name of the caller who created or changed the schedule. The next time of the schedule stays as it is. A \
schedule that is paused or has ended can be run, too. While its last job has not ended, cnapi refuses this, unless the overlap \
policy of the schedule is allow.

Ctrl-C and exit codes: as for cnapi job start.
`;

export function scheduleRunCommand(runner: CommandRunner): Command {
  const command = new Command('run')
    .description('Starts the job of a schedule now, and follows it to its end.')
    .argument('<schedule>', 'id, or the beginning of one')
    .option('--capture', 'show what the command writes on each server, as it writes it')
    .option('-d, --detach', 'print the id of the job and do not wait')
    .action(runner.action(run));
  return withExamples(withExplanation(command, MORE), ['cnapi schedule run 5c4e', 'cnapi schedule run 5c4e --detach']);
}

async function run(context: Context, [text]: readonly unknown[], { capture, detach }: RunOptions): Promise<number> {
  const { client, random } = context;
  const id = await findSchedule(context, String(text));
  const job = await client.runSchedule(id, random.uuid()).catch(refuse);
  return followStarted(context, { job, detach, capture });
}

/**
 * A value that is wrong, such as a query that no server matches, is in the schedule, not in the
 * command line.
 */
function refuse(error: unknown): never {
  if (!(error instanceof ApiError && isWrongValue(error))) throw error;
  throw new RefusedError(`the schedule cannot start a job now: ${errorReasonOf(error)} (request ${error.requestId})`);
}
