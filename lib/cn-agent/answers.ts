/**
 * What an agent owes whoever asks about a task: a task frame or a cancel against what the journal has of its id. Pure;
 * carried out by runner.ts, which explains the attempts. docs/design.md section 6.
 *
 *                     not known     accepted, running     ended           acknowledged
 *     task            take it       say that it is        tell its end    say that it has ended
 *     cancel          end it        end it                tell its end    say that it is cancelled
 *     a late cancel   –             nothing               nothing         –
 */
import type { JournalRecord, JournalState, JournalTask } from './journal.ts';
import type { Attempt } from './task-end.ts';

export type TaskAnswer =
  | { do: 'take' }
  | { do: 'say-accepted' }
  | { do: 'tell-end'; known: Extract<JournalTask, { state: 'ended' }> }
  | { do: 'say-ended' };

export type CancelAnswer =
  | { do: 'end-unknown' }
  | { do: 'end'; known: JournalTask }
  | { do: 'tell-end'; known: JournalTask }
  | { do: 'say-cancelled' }
  | { do: 'nothing' };

/** Due before an answer: under a higher attempt what is known stands under that one. */
export function renumberingOf(
  { tasks }: JournalState,
  { id, attempt }: Attempt,
): Extract<JournalRecord, { record: 'renumbered' }> | undefined {
  const known = tasks.get(id);
  return known && known.attempt < attempt ? { record: 'renumbered', id, attempt } : undefined;
}

/** An id that is known, or has ended, never starts again. */
export function answerTask({ tasks, acknowledged }: JournalState, { id }: Attempt): TaskAnswer {
  const known = tasks.get(id);
  if (known === undefined) return acknowledged.has(id) ? { do: 'say-ended' } : { do: 'take' };
  return known.state === 'ended' ? { do: 'tell-end', known } : { do: 'say-accepted' };
}

export function answerCancel({ tasks, acknowledged }: JournalState, { id, attempt }: Attempt): CancelAnswer {
  const known = tasks.get(id);
  if (known === undefined) return acknowledged.has(id) ? { do: 'say-cancelled' } : { do: 'end-unknown' };
  if (attempt !== known.attempt) return { do: 'nothing' };
  return known.state === 'ended' ? { do: 'tell-end', known } : { do: 'end', known };
}
