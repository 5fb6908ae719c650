/** A new file for a secret, which only its owner can read. */
import { type FileHandle, mkdir, open, unlink } from 'node:fs/promises';
import path from 'node:path';
import { messageOf } from '../../platform/errors.ts';
import { UsageError } from './command-errors.ts';

/**
 * Creates the file, if one is named, before `work` begins: no secret is made that cannot be saved.
 * `save` writes it. If `work` fails, the file is removed.
 * @throws UsageError if the file exists or cannot be created
 */
export async function withPrivateFile<Result>(
  file: string | undefined,
  work: (save: (secret: string) => Promise<void>) => Promise<Result>,
): Promise<Result> {
  if (file === undefined) return work(async () => undefined);
  const handle = await create(file);
  try {
    return await work((secret) => handle.writeFile(secret));
  } catch (error) {
    await unlink(file);
    throw error;
  } finally {
    await handle.close();
  }
}

async function create(file: string): Promise<FileHandle> {
  try {
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    return await open(file, 'wx', 0o600);
  } catch (cause) {
    const { code, syscall } = cause as NodeJS.ErrnoException;
    // EEXIST from mkdir would mean that the directory's name is taken by something else.
    if (code === 'EEXIST' && syscall === 'open')
      throw new UsageError(
        `--file ${file} exists: it may hold another token or key; remove it or choose another name`,
        { cause },
      );
    throw new UsageError(`--file ${file} cannot be created: ${messageOf(cause)}`, { cause });
  }
}
