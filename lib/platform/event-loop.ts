/**
 * How busy this process's event loop is, as a parameter, because a simulation has no event loop of
 * its own.
 */
export interface EventLoop {
  /** The share of the time since the last call in which the loop was busy, 0 to 1. */
  busyShare(): number;
}

/** Create one for each caller, because its result covers the time since the last call. */
export function systemEventLoop(): EventLoop {
  let before = performance.eventLoopUtilization();
  return {
    busyShare() {
      const now = performance.eventLoopUtilization();
      const { utilization } = performance.eventLoopUtilization(now, before);
      before = now;
      return Number.isFinite(utilization) ? utilization : 0;
    },
  };
}
