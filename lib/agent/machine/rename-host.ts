/** Gives this machine another name: now, and for its next boots. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { messageOf } from '../../platform/errors.ts';
import { replaceFile } from '../replace-file.ts';
import { TaskFailure } from '../task-failure.ts';

const NAME_FILE = '/etc/hostname';

/**
 * The kernel's name first: it needs the privilege, without which nothing is changed. @throws
 * TaskFailure
 */
export async function renameHost(hostname: string): Promise<void> {
  try {
    await promisify(execFile)('hostname', [hostname]);
    await writeNameFile(NAME_FILE, hostname);
  } catch (cause) {
    throw new TaskFailure('RenameFailed', `This machine cannot be named ${hostname}: ${messageOf(cause)}`, { cause });
  }
}

/**
 * A file that is a mount of its own, as in some containers, cannot be replaced: it is written in
 * place.
 */
export async function writeNameFile(path: string, hostname: string): Promise<void> {
  const text = `${hostname}\n`;
  try {
    await replaceFile(path, text, 0o644);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EBUSY')) throw error;
    await writeFile(path, text, { flush: true });
  }
}
