/** Values of the options of `cnapi vm`, checked before a task is created. */
import { constants } from 'node:os';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { MAX_VM_STOP_SECONDS, VM_STOP_MS } from '../../protocol/vms.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { parseDuration, shortDuration } from '../terminal/duration.ts';
import { SLOW_MS } from './vm-task.ts';

export interface StopOptions {
  force?: boolean;
  timeout?: string;
}

export const TIMEOUT_TEXT = `how long its program may take to end before it is killed, at most ${shortDuration(MAX_VM_STOP_SECONDS * 1000)} (default: ${VM_STOP_MS / 1000}s)`;

/** The parameters of a stop, which takes whole seconds. @throws UsageError */
export function stopParams({ force, timeout }: StopOptions): JsonObject {
  const seconds = timeout === undefined ? undefined : Math.ceil(parseDuration(timeout, '--timeout') / 1000);
  if (seconds !== undefined && seconds > MAX_VM_STOP_SECONDS)
    throw new UsageError(`--timeout ${timeout} is more than ${MAX_VM_STOP_SECONDS}s`);
  return { ...(force === true && { force }), ...(seconds !== undefined && { timeout: seconds }) };
}

/**
 * The hint shown while the program does not end; undefined if it is killed before anybody wonders.
 */
export function waitingForStop(name: string, { force, timeout = VM_STOP_MS / 1000 }: JsonObject): string | undefined {
  const leftMs = Number(timeout) * 1000 - SLOW_MS;
  if (force === true || leftMs <= 0) return undefined;
  return `waiting for ${name} to end; it is killed in ${leftMs / 1000} s (--force kills it immediately)`;
}

/** Accepts what the agent accepts: SIGTERM, TERM or 15. @throws UsageError */
export function signalParams({ signal }: { signal?: string }): JsonObject {
  if (signal === undefined) return {};
  const text = signal.toUpperCase();
  const isKnown = Object.entries(constants.signals).some(([name, number]) =>
    [name, name.slice('SIG'.length), String(number)].includes(text),
  );
  if (!isKnown) throw new UsageError(`--signal ${signal} is not a signal such as TERM, SIGHUP or 9`);
  return { signal };
}
