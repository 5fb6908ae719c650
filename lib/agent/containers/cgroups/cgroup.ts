/** One control group as a directory, with at most one level of groups below it. */
import { readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../../platform/errors.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { signalProcess } from '../../machine/proc.ts';
import { readTextFile } from '../../machine/read-text-file.ts';
import { ContainerError } from '../container-errors.ts';

const REMOVE_WITHIN_MS = 5_000;
const POLL_MS = 20;

/** Waits `patienceMs` for the processes of the group to end, then kills them. Idempotent. */
export async function removeCgroup(clock: Clock, cgroup: string, patienceMs: number): Promise<void> {
  const killAt = clock.now() + Math.max(patienceMs, 0);
  await removeWhenEmpty(clock, cgroup, {
    until: killAt + REMOVE_WITHIN_MS,
    empty: async () => {
      if (clock.now() >= killAt) for (const pid of await pidsIn(cgroup)) signalProcess(pid, 'SIGKILL');
    },
  });
}

interface Removal {
  until: number;
  /** Takes the processes out of the group; called until it has none. */
  empty(): Promise<void>;
}

/** Idempotent. @throws ContainerError if it is not empty in time */
export async function removeWhenEmpty(clock: Clock, cgroup: string, { until, empty }: Removal): Promise<void> {
  for (;;) {
    for (const name of await directoriesIn(cgroup)) await tryForError(() => rmdir(join(cgroup, name)));
    const problem = await tryForError(() => rmdir(cgroup));
    if (problem === undefined || problem === 'ENOENT') return;
    if (clock.now() > until) throw new ContainerError(`The control group ${cgroup} cannot be removed: ${problem}`);
    await empty();
    await clock.sleep(POLL_MS);
  }
}

/**
 * Ids on the machine of the group's processes: its own first, then those of the groups below it.
 */
export async function pidsIn(cgroup: string): Promise<number[]> {
  const cgroups = [cgroup, ...(await directoriesIn(cgroup)).map((name) => join(cgroup, name))];
  return (await Promise.all(cgroups.map(ownPidsIn))).flat();
}

/** 0 is a process of another pid namespace, and would mean the agent's own group. */
async function ownPidsIn(cgroup: string): Promise<number[]> {
  const text = (await readTextFile(join(cgroup, 'cgroup.procs'))) ?? '';
  return text
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 0);
}

export async function directoriesIn(path: string): Promise<string[]> {
  const entries = await readdir(path, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
}

/** The code of the error, or its message; undefined if `work` succeeds. */
export async function tryForError(work: () => Promise<unknown>): Promise<string | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? messageOf(error);
  }
}
