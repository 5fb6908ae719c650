/** Processes as Linux shows them in /proc; without /proc no process is known. */
import { readdir, readFile } from 'node:fs/promises';
import { readTextFile } from './read-text-file.ts';

interface ProcessFacts {
  pid: number;
  parent: number;
  state: string;
  pgid: number;
  session: number;
  /** Clock ticks from boot to the start. */
  startTime: string;
}

export async function processFacts(pid: number): Promise<ProcessFacts | undefined> {
  const text = await readTextFile(`/proc/${pid}/stat`);
  return text === undefined ? undefined : parseStat(pid, text);
}

/** The command's name is in parentheses and may contain anything, also parentheses and spaces. */
export function parseStat(pid: number, text: string): ProcessFacts | undefined {
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state, parent, pgid, session] = fields;
  const startTime = fields[19];
  if (state === undefined || startTime === undefined) return undefined;
  return { pid, parent: Number(parent), state, pgid: Number(pgid), session: Number(session), startTime };
}

export async function allProcesses(): Promise<ProcessFacts[]> {
  const names = await readdir('/proc').catch(() => []);
  const facts = await Promise.all(names.filter((name) => /^\d+$/.test(name)).map((name) => processFacts(Number(name))));
  return facts.filter((one) => one !== undefined);
}

export async function bootIdOf(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => 'unknown')).trim();
}

/** Sends a signal; false when no process receives it. A negative pid names a process group. */
export function signalProcess(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}
