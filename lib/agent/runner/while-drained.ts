/**
 * Reboots or resets the server for a job that has drained it. Until that has failed, no operator
 * can have the agent take tasks again; if it succeeds, the machine is about to stop, and its boot
 * or the job ends the pause. Called by `server-reboot.ts` and `server-factory-reset.ts`.
 */
import type { TaskContext } from './task-definition.ts';

/** @throws TaskFailure if the server is not drained for this job; and what `change` throws */
export async function whileDrained<Result>(
  jobId: string,
  { confirmDrain, changePause }: Pick<TaskContext, 'confirmDrain' | 'changePause'>,
  change: () => Promise<Result>,
): Promise<Result> {
  try {
    await confirmDrain(jobId);
    return await change();
  } catch (error) {
    await changePause({ type: 'change-failed', jobId });
    throw error;
  }
}
