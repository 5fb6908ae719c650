/** `cnapi cancel`: asks for the end of tasks. */
import { Command } from 'commander';
import { ApiError } from '../../client/client-errors.ts';
import { complaintOf, complaintText } from '../complaint.ts';
import type { Context } from '../context.ts';
import { examples, type Runner } from '../runner.ts';
import { EXIT } from '../usage-error.ts';
import { visible } from '../visible.ts';

export function cancelCommand(runner: Runner): Command {
  const command = new Command('cancel')
    .description(
      'Cancels tasks. What runs on a server is told to end, and killed two seconds later; cnapi task says how it ended.',
    )
    .argument('<task...>', 'ids')
    .action(runner.action(cancel));
  return examples(command, ['cnapi cancel 4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11']);
}

async function cancel({ client, output }: Context, [ids]: readonly unknown[]): Promise<number> {
  const results: unknown[] = [];
  let exitCode: number = EXIT.ok;
  for (const id of ids as string[]) {
    try {
      results.push(await client.cancelTask(id));
      if (!output.json) output.line(`${visible(id)} is to be cancelled`);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      exitCode = EXIT.failed;
      results.push({ id, error: { code: error.code, message: error.message, request_id: error.requestId } });
      if (!output.json) output.complain(complaintText(complaintOf(error)));
    }
  }
  if (output.json) output.document(results);
  return exitCode;
}
