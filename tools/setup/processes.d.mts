export interface DescribedProcess {
  pid: number;
  /** Clock ticks from boot to its start; '' where there is no /proc. */
  start: string;
}

/** The pid with its start time, which tells it from a later process of the same pid. */
export function describeProcess(pid: number): DescribedProcess;
/** Whether the very process described by `describeProcess` still runs. */
export function isAlive(described: DescribedProcess): boolean;
