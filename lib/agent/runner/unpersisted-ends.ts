/**
 * Ends of tasks that a full journal could not store. If such an attempt is sent again, it gets the
 * same end and does not run. It never started, so the next attempt may run. In memory and bounded:
 * the oldest end is dropped. Used by the runner.
 */
import { BoundedMap } from '../../platform/bounded-map.ts';
import type { TaskEndFrame } from '../../protocol/frames.ts';
import type { Attempt } from './task-end.ts';

const MAX_ENDS = 10_000;

export class UnpersistedEnds {
  readonly #ends = new BoundedMap<string, TaskEndFrame>(MAX_ENDS);

  add(end: TaskEndFrame): void {
    this.#ends.set(end.id, end);
  }

  /** The end to report for this attempt, if it or a later attempt ended here. */
  endOf({ id, attempt }: Attempt): TaskEndFrame | undefined {
    const end = this.#ends.get(id);
    return end && attempt <= end.attempt ? { ...end, attempt } : undefined;
  }

  clear(): void {
    this.#ends.clear();
  }
}
