/** What runs in a VM, and what it uses: from its control groups and from /proc. */
import { readFile } from 'node:fs/promises';
import { parseStat } from '../machine/proc.ts';

export interface VmProcess {
  /** The pid on the server. */
  pid: number;
  ppid: number;
  /** The letter that ps shows: R runs, S sleeps, and so on. */
  state: string;
  command: string;
  args: string[];
  threads: number;
  rss_bytes: number;
  /** The user id on the server. */
  uid: number;
}

const MAX_SHOWN_CHARS = 4_096;
const MAX_ARGS = 20;
const KIB = 1024;

/** Leaves out processes that have ended meanwhile. */
export async function readProcesses(pids: readonly number[]): Promise<VmProcess[]> {
  const found = await Promise.all(pids.map(readProcess));
  return found.filter((one) => one !== undefined);
}

async function readProcess(pid: number): Promise<VmProcess | undefined> {
  const [stat, status, line] = await Promise.all(
    ['stat', 'status', 'cmdline'].map((name) => readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => undefined)),
  );
  const facts = stat === undefined ? undefined : parseStat(pid, stat);
  if (facts === undefined || status === undefined || line === undefined) return undefined;
  const field = (name: string) => new RegExp(`^${name}:\\s*(\\S+)`, 'm').exec(status)?.[1];
  return {
    pid,
    ppid: Number(field('PPid')),
    state: facts.state,
    command: field('Name') ?? '',
    args: line.slice(0, MAX_SHOWN_CHARS).split('\0').slice(0, -1).slice(0, MAX_ARGS),
    threads: Number(field('Threads')),
    rss_bytes: Number(field('VmRSS') ?? 0) * KIB,
    uid: Number(field('Uid')),
  };
}
