/**
 * Whether a server is still drained for the job that reboots or resets it. The job has seen that
 * its tasks had ended; since then the machine may have booted, an operator may have resumed the
 * agent, or the lease may be over: it is counted by the agent's clock, and the job waits longer
 * while no instance is healthy. Called by `runner.ts`.
 */
import type { TaskFrame } from '../../protocol/link/frames.ts';
import type { Journal } from '../journal/journal.ts';
import type { PauseKeeper } from '../pause/pause-keeper.ts';
import type { Catalogue } from './task-definition.ts';
import { notDrained } from './task-failures.ts';

interface DrainDeps {
  pause: PauseKeeper;
  journal: Journal;
  tasks: Catalogue;
}

/**
 * The lease of the pause begins again, and no operator can end it until the task has failed
 * (`pause.ts`). `active`: the tasks of this process. `asking`: the id of the task that asks.
 * @throws TaskFailure
 */
export async function confirmDrain(
  { pause, journal, tasks }: DrainDeps,
  { jobId, asking, active }: { jobId: string; asking: string; active: ReadonlyMap<string, { frame: TaskFrame }> },
): Promise<void> {
  await pause.change({ type: 'begin-change', jobId });
  if (!pause.isDrainedFor(jobId)) throw notDrained('its agent is not paused for it');
  const journalled = [...journal.state.tasks.values()].flatMap((one) => (one.state === 'ended' ? [] : one.task));
  const present = [...active.values()].map(({ frame }) => frame);
  const other = [...journalled, ...present].find(({ id, name }) => id !== asking && !tasks.get(name)?.whilePaused);
  if (other !== undefined) throw notDrained(`its task ${other.id} (${other.name}) has not ended`);
}
