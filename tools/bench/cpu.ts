/**
 * CPU time of any process of this machine, in nanoseconds, from `/proc`. Threads that have ended
 * are not included.
 */
import { readdirSync, readFileSync } from 'node:fs';

/** Milliseconds of all live threads of these processes together. */
export function cpuMsOf(pids: readonly number[]): number {
  return pids.flatMap(threadsOf).reduce((total, file) => total + onCpuNs(file), 0) / 1e6;
}

/** The process and all its descendants: Postgres has one process for each connection. */
export function treeOf(pid: number): number[] {
  const parents = readdirSync('/proc').filter(isPid).map(Number);
  const children = parents.filter((each) => parentOf(each) === pid);
  return [pid, ...children.flatMap(treeOf)];
}

function threadsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`).map((thread) => `/proc/${pid}/task/${thread}/schedstat`);
  } catch {
    return [];
  }
}

function onCpuNs(file: string): number {
  try {
    return Number(readFileSync(file, 'utf8').split(' ')[0]);
  } catch {
    return 0;
  }
}

function parentOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in brackets may contain any character, including brackets.
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return 0;
  }
}

const isPid = (name: string): boolean => /^\d+$/.test(name);
