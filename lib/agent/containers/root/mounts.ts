/** What is mounted below a directory of the agent, and how it is unmounted. */
import { readFile, realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { lstatIfAny } from './lstat.ts';
import { runOrThrow } from './program.ts';

const MOUNT_POINT_FIELD = 4;
/** A path can have several mounts, each on top of the one before. */
const MAX_STACKED = 16;

/**
 * Mount points at or below a directory, in the order in which they were mounted. A link in its
 * place is not followed.
 */
export async function mountPointsAt(directory: string): Promise<string[]> {
  if ((await lstatIfAny(directory)) === undefined) return [];
  const place = join(await realpath(dirname(directory)), basename(directory));
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  return table
    .split('\n')
    .map((line) => unescaped(line.split(' ')[MOUNT_POINT_FIELD] ?? ''))
    .filter((point) => point === place || point.startsWith(`${place}/`));
}

/**
 * Unmounts everything at or below a directory. What is busy is detached: it goes when its last user
 * has ended. @throws ContainerError
 */
export async function unmountAll(directory: string): Promise<void> {
  for (let round = 0; round < MAX_STACKED; round++) {
    const points = await mountPointsAt(directory);
    if (points.length === 0) return;
    for (const point of points.reverse()) await unmount(point);
  }
}

async function unmount(point: string): Promise<void> {
  try {
    await runOrThrow('umount', ['--no-canonicalize', '--', point]);
  } catch {
    await runOrThrow('umount', ['--no-canonicalize', '--lazy', '--', point]);
  }
}

/** The kernel writes blanks and backslashes as octal numbers. */
const unescaped = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
