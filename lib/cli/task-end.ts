/** What the end of a task says. Pure. */
import { exitCodeOfSignal } from './signals.ts';

type Json = Readonly<Record<string, unknown>>;

/** Of the data of an `end` event: it was carried out, and if it was a command it ended with 0. */
export function hasSucceeded(end: Json): boolean {
  return end.status === 'complete' && [undefined, 0].includes(exitCodeOf(end.result));
}

/** A command's exit code, as the shell counts it for one that a signal ended; undefined for other tasks. */
export function exitCodeOf(result: unknown): number | undefined {
  const { exitCode, signal } = (result ?? {}) as Json;
  if (typeof exitCode === 'number') return exitCode;
  return typeof signal === 'string' ? exitCodeOfSignal(signal) : undefined;
}

/** Why it did not succeed; undefined if it did. */
export function errorOf(end: Json): string | undefined {
  if (hasSucceeded(end)) return undefined;
  const { message, code } = (end.error ?? {}) as Json;
  if (typeof message === 'string') return typeof code === 'string' ? `${message} (${code})` : message;
  const { exitCode, signal } = (end.result ?? {}) as Json;
  return typeof exitCode === 'number' ? `exit code ${exitCode}` : `ended by ${String(signal ?? 'something')}`;
}
