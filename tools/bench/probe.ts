/**
 * Preloaded (`--expose-gc --import`) into the processes that are measured, instances and floors alike: tells what they
 * have used. The product knows nothing of it.
 */
import { answerQuestions } from './asked.ts';

export interface CpuUse {
  /** Of all threads, user and system, since the start. */
  cpuMs: number;
}

export interface MemoryUse {
  /** After forced collections. `externalBytes` includes array buffers. */
  heapBytes: number;
  externalBytes: number;
  residentBytes: number;
}

answerQuestions({
  cpu(): CpuUse {
    const { user, system } = process.cpuUsage();
    return { cpuMs: (user + system) / 1000 };
  },
  memory(): MemoryUse {
    // The second one takes what the first one's finalizers let go.
    for (let times = 0; times < 2; times++) globalThis.gc?.();
    const { heapUsed, external, rss } = process.memoryUsage();
    return { heapBytes: heapUsed, externalBytes: external, residentBytes: rss };
  },
});
