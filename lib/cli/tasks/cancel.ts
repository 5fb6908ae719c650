/** `cnapi cancel`: requests the cancellation of tasks. */
import { Command } from 'commander';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { forEach } from '../invocation/each.ts';
import { explainNoTask, findTask } from '../lookup/find.ts';
import { buildErrorReport } from '../terminal/error-report.ts';

export function cancelCommand(runner: CommandRunner): Command {
  const command = new Command('cancel')
    .description(
      'Cancels tasks. A running command receives TERM, and KILL two seconds later; cnapi task shows how it ended.',
    )
    .argument('<task...>', 'ids, or the beginning of one')
    .action(runner.action(cancel));
  return withExamples(command, ['cnapi cancel 4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11']);
}

async function cancel({ client, output }: Context, [ids]: readonly unknown[]): Promise<number> {
  const { results, refused, exitCode } = await forEach(output, ids as string[], async (given) => {
    const id = await findTask(client, given);
    const task = await client.cancelTask(id).catch((error: unknown) => explainNoTask(error, id));
    if (!output.json) output.line(`cancellation of ${id} requested`);
    return task;
  });
  const failures = refused.map(({ id, error }) => ({ id, error: fieldsOf(error) }));
  if (output.json) output.document([...results, ...failures]);
  return exitCode;
}

function fieldsOf(error: Error) {
  const { code, message, requestId } = buildErrorReport(error);
  return { code, message, ...(requestId === undefined ? {} : { request_id: requestId }) };
}
