/**
 * Signals that ask to end, as they come; while somebody listens the process does not end of them by itself. One that was
 * ignored when the program was called (HUP under nohup, INT of what a script put in the background) stays ignored: Node
 * forgets that at its start, so tools/cnapi reads it before and leaves it in the environment.
 */
import { constants } from 'node:os';
import type { Clock } from '../ports/clock.ts';

export const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
export type EndingSignal = (typeof ENDING)[number];

/** The last eight digits of SigIgn in /proc/PID/status. */
const IGNORED = 'CNAPI_IGNORED_SIGNALS';

/** As the shell has it; 128 for a signal that is not known here. */
export function exitCodeOfSignal(signal: string): number {
  return 128 + (new Map<string, number>(Object.entries(constants.signals)).get(signal) ?? 0);
}

/** Signals that were ignored when the program was called are so again. Takes them out of the environment. */
export function ignoreAsCalled(env: NodeJS.ProcessEnv): void {
  for (const signal of ignoredIn(env[IGNORED])) process.on(signal, () => undefined);
  ignored = ignoredIn(env[IGNORED]);
  delete env[IGNORED];
}
let ignored: readonly EndingSignal[] = [];

/** Of a mask in hexadecimal; none of what is no mask. */
export function ignoredIn(mask: string | undefined): EndingSignal[] {
  if (mask === undefined || !/^[0-9a-f]{1,8}$/.test(mask)) return [];
  const bits = Number.parseInt(mask, 16);
  return ENDING.filter((signal) => ((bits >> (constants.signals[signal] - 1)) & 1) === 1);
}

/** Calls `listener` with each, and how many came before; gives the way to stop that. */
export function onEndingSignal(listener: (signal: EndingSignal, before: number) => void): () => void {
  let before = 0;
  const each = ENDING.filter((signal) => !ignored.includes(signal)).map((signal) => {
    const heard = () => listener(signal, before++);
    process.on(signal, heard);
    return () => process.off(signal, heard);
  });
  return () => each.forEach((stop) => void stop());
}

export interface Standstill {
  clock: Clock;
  onStop: () => void;
  onContinue: () => void;
}

/**
 * Ctrl-Z, and `fg` or `bg`: this process stands still as it would by itself, and `onStop` is called just before, `onContinue`
 * when it goes on. At a terminal with no shell that could wake it again (ssh -t, docker exec -it) nothing stands still: the
 * kernel drops TSTP there, for us as for the command, but never STOP.
 */
export function onStandstill({ clock, onStop, onContinue }: Standstill): () => void {
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
