import type { DescribedProcess } from './processes.mjs';

export interface Lock {
  /** Names a child that must end, too, before the lock counts as free. */
  add(pid: number): void;
}

/** Resolves once this process holds lock `name` in `folder`; calls `onWait(pid)` once when it has to wait. */
export function takeLock(folder: string, name: string, onWait: (pid: number) => void): Promise<Lock>;
/** The lock when this process holds it now, else a living process that does. */
export function tryLock(
  folder: string,
  name: string,
): { lock: Lock; holder?: undefined } | { lock?: undefined; holder: DescribedProcess };
/** The living process that holds lock `name` in `folder`, if there is one. */
export function lockHolder(folder: string, name: string): DescribedProcess | undefined;
