/** CPU time in ms that Postgres and Redis have used so far, if they are the benchmark's own. */
import { cpuMsOf, treeOf } from '../cpu.ts';
import type { BenchContext } from '../figure.ts';

export function storesCpuMs({ foundation }: BenchContext): number {
  return cpuMsOf(foundation.pids.flatMap(treeOf));
}
