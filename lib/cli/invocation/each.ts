/**
 * Runs the same work for several objects. It continues after an object is refused or unknown, and
 * after the reader of stdout has left or its disk is full. It stops when no instance answers.
 */
import { ApiError, NoAnswerError } from '../../client/client-errors.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { buildErrorReport, errorReportText } from '../terminal/error-report.ts';
import type { Output } from '../terminal/output.ts';

interface Done<Result> {
  /** One result for each object that succeeded, in order. */
  results: Result[];
  refused: { id: string; error: ApiError | NoAnswerError | UsageError }[];
  exitCode: number;
}

export async function forEach<Result>(
  output: Output,
  ids: readonly string[],
  work: (id: string) => Promise<Result>,
): Promise<Done<Result>> {
  output.onUnwritable = () => undefined;
  const results: Result[] = [];
  const refused: Done<Result>['refused'] = [];
  const exitCodes: number[] = [];
  for (const id of ids) {
    try {
      results.push(await work(id));
    } catch (error) {
      const isOfObject = error instanceof ApiError || error instanceof UsageError;
      if (!isOfObject && !(error instanceof NoAnswerError)) throw error;
      const report = buildErrorReport(error);
      output.complain(errorReportText(report));
      exitCodes.push(report.exitCode);
      refused.push({ id, error });
      if (error instanceof NoAnswerError) return { results, refused, exitCode: EXIT.noAnswer };
    }
  }
  if (refused.length === 0) return { results, refused, exitCode: EXIT.ok };
  // Wrong usage means that nothing was changed, as it does for one object.
  const isUsage = results.length === 0 && exitCodes.every((code) => code === EXIT.usage);
  return { results, refused, exitCode: isUsage ? EXIT.usage : EXIT.failed };
}

/** Deletes several objects and prints their ids. `what`: the name of one. Returns the exit code. */
export async function deleteEach(
  output: Output,
  what: string,
  ids: readonly string[],
  remove: (id: string) => Promise<unknown>,
): Promise<number> {
  const { results: deleted, exitCode } = await forEach(output, ids, async (id) => {
    await remove(id);
    if (!output.json) output.deleted(what, [id]);
    return id;
  });
  if (output.json) output.deleted(what, deleted);
  return exitCode;
}
