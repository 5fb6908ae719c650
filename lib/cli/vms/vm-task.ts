/** Waits for the task of a VM and says how it ended. Used by `cnapi vm`. */
import type { Context } from '../invocation/context.ts';
import { endOfTask, errorOf, hasSucceeded } from '../runs/task-end.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { EXIT } from '../terminal/usage-error.ts';

interface StartedTask {
  id: string;
  /** What succeeded, as `started web`. */
  done: string;
  /** Does not wait: prints only the task's id. */
  detach: boolean;
}

/** Returns the exit code. */
export async function reportTask(context: Context, { id, done, detach }: StartedTask): Promise<number> {
  const { client, output } = context;
  if (detach) {
    if (output.json) output.document({ id });
    else output.line(id);
    return EXIT.ok;
  }
  const onBroken = (reason: string) => output.note(`${reason}; continuing at another instance`);
  for await (const event of client.followTask(id, { onBroken })) if (event.name === 'end') break;
  const task = await client.task(id);
  const end = endOfTask(task);
  if (output.json) output.document(task);
  else if (hasSucceeded(end)) output.line(escapeControls(done));
  else
    output.complain(`${task.task} failed: ${escapeControls(errorOf(end) ?? 'no error given')}; see cnapi task ${id}`);
  return hasSucceeded(end) ? EXIT.ok : EXIT.failed;
}
