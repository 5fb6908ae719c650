/** What runs in a VM, and what it uses: from its control groups and from /proc. */
import { open } from 'node:fs/promises';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import { parseStat } from '../machine/proc.ts';
import { readTextFile } from '../machine/read-text-file.ts';

export interface VmProcess {
  /** The pid on the server. */
  pid: number;
  ppid: number;
  /** The letter that ps shows: R runs, S sleeps, and so on. */
  state: string;
  command: string;
  /** The first ones, and of the last of them the beginning. */
  args: string[];
  threads: number;
  rss_bytes: number;
  /** The user id on the server. */
  uid: number;
}

/**
 * A process may map what it shows as its arguments, so they may be as large as its address space.
 */
const MAX_LINE_BYTES = 4_096;
const MAX_ARGS = 20;
/**
 * Limit for a process's arguments as JSON: those of 300 processes must fit into the result of a
 * task.
 */
const MAX_ARGS_CHARS = 100;
const CONCURRENT_READS = 8;
const KIB = 1024;

/** Leaves out processes that have ended meanwhile. */
export async function readProcesses(pids: readonly number[]): Promise<VmProcess[]> {
  const slots = new Semaphore(CONCURRENT_READS);
  const found = await Promise.all(pids.map((pid) => slots.run(() => readProcess(pid))));
  return found.filter((one) => one !== undefined);
}

async function readProcess(pid: number): Promise<VmProcess | undefined> {
  const [stat, status, line] = await Promise.all([
    ...['stat', 'status'].map((name) => readTextFile(`/proc/${pid}/${name}`)),
    readCommandLine(pid).catch(() => undefined),
  ]);
  const facts = stat === undefined ? undefined : parseStat(pid, stat);
  if (facts === undefined || status === undefined || line === undefined) return undefined;
  const field = (name: string) => new RegExp(`^${name}:\\s*(\\S+)`, 'm').exec(status)?.[1];
  return {
    pid,
    ppid: Number(field('PPid')),
    state: facts.state,
    command: field('Name') ?? '',
    args: shownArgs(line),
    threads: Number(field('Threads')),
    rss_bytes: Number(field('VmRSS') ?? 0) * KIB,
    uid: Number(field('Uid')),
  };
}

/** The beginning of the process's command line. */
async function readCommandLine(pid: number): Promise<string> {
  await using file = await open(`/proc/${pid}/cmdline`);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_LINE_BYTES), 0, MAX_LINE_BYTES, 0);
  return buffer.toString('utf8', 0, bytesRead);
}

function shownArgs(line: string): string[] {
  const args: string[] = [];
  let left = MAX_ARGS_CHARS;
  for (const arg of line === '' ? [] : line.replace(/\0$/, '').split('\0', MAX_ARGS)) {
    // The quotes and the comma of this argument.
    left -= 3;
    let shown = '';
    for (const char of arg) {
      left -= JSON.stringify(char).length - 2;
      if (left < 0) break;
      shown += char;
    }
    if (left < 0 && shown === '') break;
    args.push(shown);
    if (left < 0) break;
  }
  return args;
}
