/** A new file for a secret, which only its owner can read. */
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { messageOf } from '../../platform/errors.ts';
import { UsageError } from './usage-error.ts';

/** @throws UsageError if the file exists or cannot be created */
export async function newPrivateFile(file: string): Promise<FileHandle> {
  try {
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    return await open(file, 'wx', 0o600);
  } catch (cause) {
    const { code, syscall } = cause as NodeJS.ErrnoException;
    // With the syscall mkdir, something else has the name of its directory.
    if (code === 'EEXIST' && syscall === 'open')
      throw new UsageError(
        `--file ${file} exists: it may hold another token or key; remove it or choose another name`,
        { cause },
      );
    throw new UsageError(`--file ${file} cannot be created: ${messageOf(cause)}`, { cause });
  }
}
