/**
 * Runs the same work for several objects. It continues after an object is refused, and after the
 * reader of stdout has left. It stops when no instance answers.
 */
import { ApiError, NoAnswerError } from '../../client/client-errors.ts';
import { errorReportOf, errorReportText } from '../terminal/error-report.ts';
import type { Output } from '../terminal/output.ts';
import { EXIT } from '../terminal/usage-error.ts';

interface Done<Result> {
  /** One result for each object that succeeded, in order. */
  results: Result[];
  refused: { id: string; error: ApiError | NoAnswerError }[];
  exitCode: number;
}

export async function forEach<Result>(
  output: Output,
  ids: readonly string[],
  work: (id: string) => Promise<Result>,
): Promise<Done<Result>> {
  output.onReaderGone = () => undefined;
  const results: Result[] = [];
  const refused: Done<Result>['refused'] = [];
  for (const id of ids) {
    try {
      results.push(await work(id));
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof NoAnswerError)) throw error;
      output.complain(errorReportText(errorReportOf(error)));
      refused.push({ id, error });
      if (error instanceof NoAnswerError) return { results, refused, exitCode: EXIT.noAnswer };
    }
  }
  return { results, refused, exitCode: refused.length === 0 ? EXIT.ok : EXIT.failed };
}
