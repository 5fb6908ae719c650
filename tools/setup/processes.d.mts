export interface DescribedProcess {
  pid: number;
  /** Clock ticks from boot to its start; '' without /proc. */
  start: string;
}

/** Returns the pid with its start time, which differs for a later process of the same pid. */
export function describeProcess(pid: number): DescribedProcess;
/** Whether the process described by `describeProcess` is still running. */
export function isAlive(described: DescribedProcess): boolean;
