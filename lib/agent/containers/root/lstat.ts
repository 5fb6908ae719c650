import type { Stats } from 'node:fs';
import { lstat } from 'node:fs/promises';

/** The stats of a path, without following a link; undefined if nothing exists there. */
export async function lstatIfAny(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR'))
      return undefined;
    throw error;
  }
}
