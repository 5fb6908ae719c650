/**
 * How the exit status of a program says which signal ended it: 128 and the number of the signal.
 */
import { constants } from 'node:os';

const SIGNAL_BASE = 128;
/** Names by number; of several names the usual one. */
const NAMES = new Map(
  Object.entries(constants.signals)
    .reverse()
    .map(([name, number]) => [number as number, name]),
);

/** Undefined if the program exited by itself. */
export const signalOfStatus = (status: number): string | undefined => NAMES.get(status - SIGNAL_BASE);

export const statusOfSignal = (name: string): number => SIGNAL_BASE + (constants.signals[name as NodeJS.Signals] ?? 0);
