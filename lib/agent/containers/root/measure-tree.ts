/**
 * How much a directory holds. Its contents are somebody else's, so nothing of them is kept in
 * memory.
 */
import { lstat, opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { ContainerError } from '../container-errors.ts';

/** Each level keeps a directory open. */
const MAX_DEPTH = 500;

/**
 * @returns the bytes of all files. @throws ContainerError if it has more entries, or is too deep
 */
export async function measureTree(directory: string, maxEntries: number): Promise<number> {
  let [bytes, entries] = [0, 0];
  const measure = async (path: string, depth: number): Promise<void> => {
    if (depth > MAX_DEPTH)
      throw new ContainerError(`The directory has directories that are more than ${MAX_DEPTH} deep; remove them`);
    for await (const entry of await opendir(path)) {
      entries += 1;
      if (entries > maxEntries)
        throw new ContainerError(`The directory has more than ${maxEntries} files and directories; remove some`);
      const inner = join(path, entry.name);
      if (entry.isDirectory()) await measure(inner, depth + 1);
      else bytes += (await lstat(inner)).size;
    }
  };
  await measure(directory, 1);
  return bytes;
}
