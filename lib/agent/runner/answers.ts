/**
 * How an agent answers a task or task_cancel frame, given what its journal holds for the task's id.
 * A late cancel names an earlier attempt. Pure; runner.ts carries out the answer and explains
 * attempts. docs/design/tasks.md.
 *
 *                    not known   accepted, running    ended          acknowledged
 *     task           take it     send that it is      send its end   send that it has ended
 *     cancel         end it      end it               send its end   send that it is cancelled
 *     late cancel    –           nothing              nothing        –
 */
import type { JournalRecord, JournalState, JournalTask } from '../journal/journal.ts';
import type { Attempt } from './task-end.ts';

type TaskAnswer =
  | { do: 'take' }
  | { do: 'say-accepted' }
  | { do: 'send-end'; known: Extract<JournalTask, { state: 'ended' }> }
  | { do: 'say-ended' };

type CancelAnswer =
  | { do: 'end-unknown' }
  | { do: 'end'; known: JournalTask }
  | { do: 'send-end'; known: JournalTask }
  | { do: 'say-cancelled' }
  | { do: 'nothing' };

/**
 * The record to append before the answer if the frame has a higher attempt: the known task
 * continues under that attempt.
 */
export function renumber(
  { tasks }: JournalState,
  { id, attempt }: Attempt,
): Extract<JournalRecord, { record: 'renumbered' }> | undefined {
  const known = tasks.get(id);
  return known && known.attempt < attempt ? { record: 'renumbered', id, attempt } : undefined;
}

/** A known or ended id never starts again. */
export function answerTask({ tasks, acknowledged }: JournalState, { id }: Attempt): TaskAnswer {
  const known = tasks.get(id);
  if (known === undefined) return acknowledged.has(id) ? { do: 'say-ended' } : { do: 'take' };
  return known.state === 'ended' ? { do: 'send-end', known } : { do: 'say-accepted' };
}

export function answerCancel({ tasks, acknowledged }: JournalState, { id, attempt }: Attempt): CancelAnswer {
  const known = tasks.get(id);
  if (known === undefined) return acknowledged.has(id) ? { do: 'say-cancelled' } : { do: 'end-unknown' };
  if (attempt !== known.attempt) return { do: 'nothing' };
  return known.state === 'ended' ? { do: 'send-end', known } : { do: 'end', known };
}
