/**
 * When the machine booted. The kernel says the time of day minus its uptime, so its answer moves
 * with each step of the machine's clock, and an instance would take that for another boot. So the
 * first answer of a boot is kept in the data directory, with the id of that boot.
 */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { readTextFile } from './read-text-file.ts';

/** Seconds since the epoch, as text; undefined if the kernel does not say. */
export async function keptBootTime(file: string, bootId: string): Promise<string | undefined> {
  const [keptId, kept] = (await readFile(file, 'utf8').catch(() => '')).trim().split(' ');
  if (keptId === bootId && kept !== undefined && /^\d+$/.test(kept)) return kept;
  const time = await readBootTime();
  if (time === undefined) return undefined;
  // If it cannot be kept, the next agent of this boot reads it again.
  await writeFile(`${file}.new`, `${bootId} ${time}\n`)
    .then(() => rename(`${file}.new`, file))
    .catch(() => undefined);
  return time;
}

/** The same, by the present clock. */
export async function readBootTime(): Promise<string | undefined> {
  return /^btime (\d+)$/m.exec((await readTextFile('/proc/stat')) ?? '')?.[1];
}
