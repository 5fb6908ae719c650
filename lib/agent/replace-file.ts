/** Replaces a whole file: after a crash of the machine it is the old or the new one. */
import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { syncDirectory } from './sync-directory.ts';

/** Resolves when the new text survives a crash. Writes it beside the file first, to FILE.new. */
export async function replaceFile(path: string, text: string, mode: number): Promise<void> {
  const draft = `${path}.new`;
  try {
    const file = await open(draft, 'w', mode);
    try {
      await file.writeFile(text);
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}
