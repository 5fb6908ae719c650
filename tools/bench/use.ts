/** What a process has used, as it tells when asked: preloaded into instances by `probe.ts`, built into the floors' programs. */
export interface CpuUse {
  /** Of all threads, user and system, since the start. */
  cpuMs: number;
}

export interface MemoryUse {
  /** After forced collections (`--expose-gc`). External memory includes array buffers. */
  heapBytes: number;
  externalBytes: number;
  residentBytes: number;
}

export const useAnswers = {
  cpu(): CpuUse {
    const { user, system } = process.cpuUsage();
    return { cpuMs: (user + system) / 1000 };
  },
  memory(): MemoryUse {
    if (globalThis.gc === undefined) throw new Error('start it with --expose-gc');
    // The second one takes what the first one's finalizers let go.
    for (let times = 0; times < 2; times++) globalThis.gc();
    const { heapUsed, external, rss } = process.memoryUsage();
    return { heapBytes: heapUsed, externalBytes: external, residentBytes: rss };
  },
};
