/** Finds programs of this machine. */
import { access, constants } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * The path of the first executable file of this name in the directories; undefined if there is
 * none.
 */
export async function findExecutable(name: string, directories: readonly string[]): Promise<string | undefined> {
  for (const directory of directories) {
    const file = join(directory || '.', name);
    const isThere = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return file;
  }
  return undefined;
}
