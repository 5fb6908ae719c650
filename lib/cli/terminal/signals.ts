/**
 * Signals that ask the process to end. While a listener is registered they do not end the process.
 * A signal that was ignored when the program was started (HUP under nohup, INT of a background job
 * in a script) stays ignored: Node resets this at its start, so tools/cnapi reads it before and
 * passes it in the environment.
 */
import { constants } from 'node:os';
import type { Clock } from '../../platform/time/clock.ts';

const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
export type EndingSignal = (typeof ENDING)[number];

/** The last eight digits of SigIgn in /proc/PID/status. */
const IGNORED = 'CNAPI_IGNORED_SIGNALS';

/** The exit code that a shell uses; 128 for an unknown signal. */
export function exitCodeOfSignal(signal: string): number {
  return 128 + (new Map<string, number>(Object.entries(constants.signals)).get(signal) ?? 0);
}

/**
 * Ignores the signals again that were ignored when the program was started. Removes them from the
 * environment.
 */
export function restoreIgnoredSignals(env: NodeJS.ProcessEnv): void {
  for (const signal of parseSignalMask(env[IGNORED])) process.on(signal, () => undefined);
  ignored = parseSignalMask(env[IGNORED]);
  delete env[IGNORED];
}
let ignored: readonly EndingSignal[] = [];

/** The ending signals in a hexadecimal mask; empty when the mask is malformed. */
export function parseSignalMask(mask: string | undefined): EndingSignal[] {
  if (mask === undefined || !/^[0-9a-f]{1,8}$/.test(mask)) return [];
  const bits = Number.parseInt(mask, 16);
  return ENDING.filter((signal) => ((bits >> (constants.signals[signal] - 1)) & 1) === 1);
}

/**
 * Calls `listener` with each signal and the number of earlier ones; returns a function that stops
 * this.
 */
export function onEndingSignal(listener: (signal: EndingSignal, before: number) => void): () => void {
  let before = 0;
  const each = ENDING.filter((signal) => !ignored.includes(signal)).map((signal) => {
    const handler = () => listener(signal, before++);
    process.on(signal, handler);
    return () => process.off(signal, handler);
  });
  return () => each.forEach((stop) => void stop());
}

interface JobControlStop {
  clock: Clock;
  onStop: () => void;
  onContinue: () => void;
}

/**
 * Handles Ctrl-Z, and `fg` or `bg`: this process stops as it would by default; `onStop` is called
 * just before, `onContinue` when it continues. At a terminal with no shell that could wake it (ssh
 * -t, docker exec -it) the process does not stop: there the kernel drops TSTP, for this process and
 * for the command, but it never drops STOP.
 */
export function onJobControlStop({ clock, onStop, onContinue }: JobControlStop): () => void {
  let isOver = false;
  const stop = () => {
    onStop();
    if (process.stdin.isTTY !== true) return void process.kill(process.pid, 'SIGSTOP');
    process.off('SIGTSTP', stop);
    process.kill(process.pid, 'SIGTSTP');
    clock.afterPoll(() => void (isOver || process.on('SIGTSTP', stop)));
  };
  process.on('SIGTSTP', stop).on('SIGCONT', onContinue);
  return () => {
    isOver = true;
    process.off('SIGTSTP', stop).off('SIGCONT', onContinue);
  };
}
