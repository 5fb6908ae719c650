/**
 * What becomes of a claimed task that could not be read. One rule for both dispatches. A task whose
 * params repeatedly do not pass the network from the database in time ends: otherwise it would take
 * room of its server for ever.
 */
import { isUnanswered, messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { BatchQueueDeps } from '../../../platform/postgres/batches/batch-queue.ts';

interface FailedReadDeps<Task> {
  /** The task as it was claimed. */
  claimOf: (task: Task) => { id: string; attempt: number; paramsBytes: number };
  end: (task: Task) => void;
  /** Takes the task out of memory. The slow poll finds it again. */
  forget: (task: Task) => void;
  log: Logger;
}

/** Unanswered reads before a task ends. With the pauses between them they take about a minute. */
const MAX_UNANSWERED = 5;

/** Part of the dependencies of a queue of reads. */
export function failedReads<Task extends object>({
  claimOf,
  end,
  forget,
  log,
}: FailedReadDeps<Task>): Required<Pick<BatchQueueDeps<Task>, 'onBusy' | 'onRefused'>> {
  const unanswered = new WeakMap<Task, number>();
  return {
    onBusy(task, error) {
      const count = (unanswered.get(task) ?? 0) + (isUnanswered(error) ? 1 : 0);
      unanswered.set(task, count);
      if (count < MAX_UNANSWERED) return false;
      const { id, attempt, paramsBytes } = claimOf(task);
      const fields = { task: id, attempt, params_bytes: paramsBytes };
      log.warn(fields, 'task: params could not be read in time from the database; ending the task');
      end(task);
      return true;
    },
    onRefused(task, error) {
      log.warn({ task: claimOf(task).id, reason: messageOf(error) }, 'task: params cannot be read now');
      forget(task);
      return undefined;
    },
  };
}
