/** How a task ended: whether it succeeded, its exit code, its error. Pure. */
import type { Task } from '../../protocol/api/tasks.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { exitCodeOfSignal } from '../terminal/signals.ts';

/** Shown to a caller that may look at tasks but not run them. */
export const WITHHELD = 'its parameters and output are shown only to the role operator and above';

/** The end of a task as its history has it, in the form of the data of an `end` event. */
export function endOfTask({ status, history }: Pick<Task, 'status' | 'history'>) {
  const eventOf = (name: string) => history.find((entry) => entry.name === name)?.event;
  return { status, result: eventOf('finish'), error: eventOf('error')?.error };
}

/**
 * Takes the data of an `end` event: true if the task completed and, if it was a command, exited
 * with 0.
 */
export function hasSucceeded(end: JsonObject): boolean {
  return end.status === 'complete' && [undefined, 0].includes(exitCodeOf(end.result));
}

/**
 * A command's exit code, or a shell's code for a signal that ended it; undefined for other tasks.
 */
export function exitCodeOf(result: unknown): number | undefined {
  const { exitCode, signal } = (result ?? {}) as JsonObject;
  if (typeof exitCode === 'number') return exitCode;
  return typeof signal === 'string' ? exitCodeOfSignal(signal) : undefined;
}

/** The code of the error of a task that failed. */
export function errorCodeOf(end: JsonObject): string | undefined {
  const { code } = (end.error ?? {}) as JsonObject;
  return typeof code === 'string' ? code : undefined;
}

const STATUS_OF_ERROR: Readonly<Record<string, string>> = { Cancelled: 'cancelled', TaskTimeout: 'timed_out' };

/**
 * The status of a task as people see it. One that was cancelled or ran out of time may have an exit
 * code of 0: `failure` beside it would contradict it.
 */
export const shownStatus = (status: string, errorCode: string | undefined): string =>
  (status === 'failure' && errorCode !== undefined ? STATUS_OF_ERROR[errorCode] : undefined) ?? status;

/** Returns why the task did not succeed; undefined if it did. */
export function errorOf(end: JsonObject): string | undefined {
  if (hasSucceeded(end)) return undefined;
  const { message } = (end.error ?? {}) as JsonObject;
  const code = errorCodeOf(end);
  if (typeof message === 'string') return code === undefined ? message : `${message} (${code})`;
  const { exitCode, signal } = (end.result ?? {}) as JsonObject;
  return typeof exitCode === 'number' ? `exit code ${exitCode}` : `ended by ${String(signal ?? 'something')}`;
}
