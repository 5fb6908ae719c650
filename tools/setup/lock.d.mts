import type { DescribedProcess } from './processes.mjs';

export interface Lock {
  /** Adds a child that must also end before the lock counts as free. */
  add(pid: number): void;
}

/**
 * Resolves when this process holds lock `name` in `folder`; calls `onWait(pid)` once if it has to
 * wait.
 */
export function takeLock(folder: string, name: string, onWait: (pid: number) => void): Promise<Lock>;
/** Returns the lock if this process holds it now, otherwise the running process that holds it. */
export function tryLock(
  folder: string,
  name: string,
): { lock: Lock; holder?: undefined } | { lock?: undefined; holder: DescribedProcess };
/** Returns the running process that holds lock `name` in `folder`, if there is one. */
export function lockHolder(folder: string, name: string): DescribedProcess | undefined;
