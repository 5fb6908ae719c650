import { open } from 'node:fs/promises';

/** Resolves when the names in a directory survive a crash of the machine. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
