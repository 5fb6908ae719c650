import type { Stats } from 'node:fs';
import { lstat } from 'node:fs/promises';

/** What is there, without following a link; undefined if nothing is. */
export async function lstatIfAny(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR'))
      return undefined;
    throw error;
  }
}
