/**
 * The record of a run, by which the next agent finds its processes. It is a file in the directory
 * of the container. A damaged record counts as absent.
 */
import { readFile, rename, writeFile } from 'node:fs/promises';
import type { ContainerPaths } from './container-paths.ts';
import type { CreatedRun } from './monitor.ts';

interface RunRecord extends CreatedRun {
  run: number;
  /** Processes of another boot are gone. */
  bootId: string;
  /** Absent in records of older agents. */
  hasTerminal?: boolean;
}

export async function writeRunRecord({ run }: ContainerPaths, record: RunRecord): Promise<void> {
  const draft = `${run}.new`;
  await writeFile(draft, JSON.stringify(record), { mode: 0o600 });
  await rename(draft, run);
}

export async function readRunRecord({ run }: ContainerPaths): Promise<RunRecord | undefined> {
  try {
    return JSON.parse(await readFile(run, 'utf8')) as RunRecord;
  } catch {
    return undefined;
  }
}
