/** What Postgres and Redis have spent so far, where they are ours; in ms of CPU. */
import { cpuMsOf, treeOf } from '../cpu.ts';
import type { BenchContext } from '../figure.ts';

export function storesCpuMs({ foundation }: BenchContext): number {
  return cpuMsOf(foundation.pids.flatMap(treeOf));
}
