/** Whether a step of a workflow job is done once its task has ended. Pure. */
import { endError, type TaskRow } from '../tasks/store/task.ts';

type EndedTask = Pick<TaskRow, 'outcome' | 'error' | 'cancel_requested_at' | 'started_at'>;

/**
 * `accepted`: the error with which the step counts as done. `isFinal`: trying it again would not
 * help.
 */
type StepResult =
  | { isDone: true; accepted?: string }
  | { isDone: false; error: { code: string; message: string }; isFinal: boolean };

/** `accepts`: codes of errors with which the step is done all the same. */
export function decideStepResult(task: EndedTask, accepts: readonly string[]): StepResult {
  if (task.outcome !== 'failure') return { isDone: true };
  const error = endError(task) ?? { code: 'Failed', message: 'no error given' };
  // The agent has cancelled what was overdue before it began, so its effect cannot have happened.
  const hasNotBegun = task.error?.code === 'Cancelled' && task.started_at === null;
  return accepts.includes(error.code) && !hasNotBegun
    ? { isDone: true, accepted: error.code }
    : { isDone: false, error, isFinal: error.code === 'UnknownTask' };
}
