/**
 * What the journal notes of the starts of a task. A task that continues is started by each process
 * of the agent until it ends; they share one count of starts and one time limit. Pure.
 */
import { definedFields } from '../../platform/defined-fields.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { JournalRecord, JournalTask, ProcessGroup } from '../journal/journal.ts';
import type { ActiveTask } from './active-task.ts';

/** Undefined if the start is in the journal already. */
export function startRecord(
  { frame: { id }, task }: Pick<ActiveTask, 'frame' | 'task'>,
  known: JournalTask | undefined,
  { group, now }: { group: ProcessGroup | undefined; now: number },
): JournalRecord | undefined {
  if (known?.state !== 'running')
    return { record: 'started', id, ...definedFields({ group }), ...(task.continues ? { at: now } : {}) };
  return task.continues ? { record: 'restarted', id, starts: known.starts + 1 } : undefined;
}

export const startsOf = (known: JournalTask | undefined): number => (known?.state === 'running' ? known.starts : 0);

/**
 * How much of its time limit a task has used in former processes. A clock that went back counts as
 * none.
 */
export function passedMsOf(known: JournalTask | undefined, clock: Pick<Clock, 'wallTime'>): number {
  if (known?.state !== 'running' || known.startedAt === undefined) return 0;
  return Math.max(0, clock.wallTime() - known.startedAt);
}
