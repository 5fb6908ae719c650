/** CPU time in ms that Postgres and Redis have used so far, if they are the benchmark's own. */
import { cpuMsOf, treeOf } from '../bench/cpu.ts';
import type { BenchContext } from '../bench/figure.ts';

export function storesCpuMs({ foundation }: BenchContext): number {
  return cpuMsOf(foundation.pids.flatMap(treeOf));
}
