/**
 * How busy this process's event loop is, as a parameter, because a simulation has no event loop of
 * its own.
 */
export interface EventLoop {
  /**
   * The share of the time since the last call in which the loop had a processor, 0 to 1. Time in
   * which it waited for one does not count: on a machine that other programs keep busy, less work
   * in this process would not help.
   */
  busyShare(): number;
}

/** Create one for each caller, because its result covers the time since the last call. */
export function systemEventLoop(): EventLoop {
  let before = usedMs();
  let at = performance.now();
  return {
    busyShare() {
      const [used, now] = [usedMs(), performance.now()];
      const share = now > at ? (used - before) / (now - at) : 0;
      [before, at] = [used, now];
      return Math.min(1, share);
    },
  };
}

/** Node 22 knows the processor time of the whole process only. */
const readUsage = process.threadCpuUsage ?? process.cpuUsage;

function usedMs(): number {
  const { user, system } = readUsage.call(process);
  return (user + system) / 1_000;
}
