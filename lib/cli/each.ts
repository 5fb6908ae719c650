/** The same for several objects: one that is refused does not keep the others from it. */
import { ApiError } from '../client/client-errors.ts';
import { complaintOf, complaintText } from './complaint.ts';
import type { Output } from './output.ts';
import { EXIT } from './usage-error.ts';

/** Gives those for which it was done, and the exit code. @throws NoAnswerError at once */
export async function forEach(
  output: Output,
  ids: readonly string[],
  work: (id: string) => Promise<void>,
): Promise<{ done: string[]; exitCode: number }> {
  const done: string[] = [];
  for (const id of ids) {
    try {
      await work(id);
      done.push(id);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      output.complain(complaintText(complaintOf(error)));
    }
  }
  return { done, exitCode: done.length === ids.length ? EXIT.ok : EXIT.failed };
}
