import { writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { writeHeapSnapshot } from 'node:v8';

/**
 * Reports the CPU and memory use of a process: preloaded into instances by `probe.ts`, imported by
 * the floors' programs.
 */
export interface CpuUse {
  /** CPU time of all threads, user and system, since the start of the process. */
  cpuMs: number;
}

export interface MemoryUse {
  /** Measured after forced collections (`--expose-gc`). External memory includes array buffers. */
  heapBytes: number;
  externalBytes: number;
  residentBytes: number;
}

let profiler: Session | undefined;

export const useAnswers = {
  cpu(): CpuUse {
    const { user, system } = process.cpuUsage();
    return { cpuMs: (user + system) / 1000 };
  },
  memory(): MemoryUse {
    if (globalThis.gc === undefined) throw new Error('start it with --expose-gc');
    // The second collection frees what the first one's finalizers released.
    for (let times = 0; times < 2; times++) globalThis.gc();
    const { heapUsed, external, rss } = process.memoryUsage();
    return { heapBytes: heapUsed, externalBytes: external, residentBytes: rss };
  },
  async startProfile(): Promise<void> {
    profiler = new Session();
    profiler.connect();
    await profiler.post('Profiler.enable');
    await profiler.post('Profiler.start');
  },
  /** Writes a profile that Chrome's developer tools and others can read. */
  async writeProfile({ file }: { file: string }): Promise<void> {
    const { profile } = (await profiler?.post('Profiler.stop')) ?? {};
    writeFileSync(file, JSON.stringify(profile));
    profiler?.disconnect();
  },
  writeHeap({ file }: { file: string }): void {
    writeHeapSnapshot(file);
  },
};
