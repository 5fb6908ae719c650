/**
 * Waits for a task of a server and says how it ended. Used by `cnapi vm`, `cnapi image` and
 * `cnapi zfs`.
 */

import { serverTaskContracts } from '../../protocol/api/server-tasks.ts';
import type { Task } from '../../protocol/api/tasks.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { endOfTask, hasSucceeded } from '../output/task-end.ts';
import { EXIT } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { vmFailureText } from './vm-failure.ts';

interface StartedTask {
  id: string;
  /** What succeeded, as `started web`. */
  done: string;
  /** What did not happen, for example `web could not be started`. */
  failed: string;
  /** Does not wait: prints only the task's id. */
  detach: boolean;
  /** What this command waits for, said on stderr once that takes longer than `SLOW_MS`. */
  waiting?: string | undefined;
}

/** People begin to wonder. */
export const SLOW_MS = 2_000;

/** Creates the task for a server that is named as in command lines, then as `reportTask`. */
export async function runServerTask(
  context: Context,
  server: string,
  { task, params, ...report }: Omit<StartedTask, 'id'> & { task: TaskName; params: JsonObject },
): Promise<number> {
  const { uuid: server_uuid } = await findServer(context.client, server);
  const { id } = await context.client.documents(serverTaskContracts.CreateTask, { server_uuid, task, params });
  return reportTask(context, { id: String(id), ...report });
}

/** Returns the exit code. A signal ends the wait; the task continues. */
export async function reportTask(context: Context, { waiting, ...task }: StartedTask): Promise<number> {
  const { output, clock } = context;
  const { id, detach } = task;
  if (detach) {
    if (output.json) output.document({ id });
    else output.line(id);
    return EXIT.ok;
  }
  const stopped = Promise.withResolvers<number>();
  const stop = onEndingSignal((signal) => {
    output.complain(`task ${id} continues; cnapi task ${id} shows how it ends`);
    stopped.resolve(exitCodeOfSignal(signal));
  });
  const slow = waiting === undefined ? undefined : clock.after(SLOW_MS, () => output.note(waiting));
  try {
    const ended = taskEnd(context, id);
    const end = await Promise.race([ended, stopped.promise]);
    if (typeof end !== 'number') return say(context, end, task);
    ended.catch(() => undefined);
    return end;
  } finally {
    slow?.cancel();
    stop();
  }
}

/** Resolves to the task when it has ended. */
export async function taskEnd({ client, output }: Context, id: string): Promise<Task> {
  const onBroken = (reason: string) => output.note(`${reason}; continuing at another instance`);
  for await (const event of client.followTask(id, { onBroken })) if (event.name === 'end') break;
  return client.task(id);
}

function say({ output }: Context, task: Task, { id, done, failed }: Omit<StartedTask, 'waiting'>): number {
  const end = endOfTask(task);
  if (output.json) output.document(task);
  else if (hasSucceeded(end)) output.line(escapeControls(done));
  else output.complain(vmFailureText(escapeControls(failed), end, `cnapi task ${id}`));
  return hasSucceeded(end) ? EXIT.ok : EXIT.failed;
}
