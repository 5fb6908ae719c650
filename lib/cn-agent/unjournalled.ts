/**
 * Ends of tasks that the full journal could not take: the same attempt gets the same answer, never a run. Nothing of such an
 * attempt ran, so the next one is a new chance. In memory, bounded: the oldest is forgotten. Used by the runner.
 */
import type { TaskEndFrame } from '../wire/frames.ts';
import type { Attempt } from './task-end.ts';

const MAX_ENDS = 10_000;

export class Unjournalled {
  readonly #ends = new Map<string, TaskEndFrame>();

  add(end: TaskEndFrame): void {
    const oldest = this.#ends.keys().next();
    if (this.#ends.size >= MAX_ENDS && !oldest.done) this.#ends.delete(oldest.value);
    this.#ends.set(end.id, end);
  }

  /** What whoever asks for this attempt, or a lower one, was told or would have been. */
  endOf({ id, attempt }: Attempt): TaskEndFrame | undefined {
    const end = this.#ends.get(id);
    return end && attempt <= end.attempt ? { ...end, attempt } : undefined;
  }

  clear(): void {
    this.#ends.clear();
  }
}
