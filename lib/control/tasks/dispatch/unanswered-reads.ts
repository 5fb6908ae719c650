/**
 * When to give up reading a claimed task whose params do not pass the network from the database.
 * Otherwise it would take room of its server for ever. One rule for both dispatches.
 */
import { isUnanswered } from '../../../platform/errors.ts';

/** With the pauses between them, reads of about a minute. */
const MAX_UNANSWERED = 5;

export class UnansweredReads<Task extends object> {
  readonly #counts = new WeakMap<Task, number>();

  /** Call when a read of this task alone failed. Returns whether it is not to be read again. */
  neverPasses(task: Task, error: unknown): boolean {
    const count = (this.#counts.get(task) ?? 0) + (isUnanswered(error) ? 1 : 0);
    this.#counts.set(task, count);
    return count >= MAX_UNANSWERED;
  }
}
