/** Gives this machine another name: now, and for its next boots. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { messageOf } from '../../platform/errors.ts';
import { TaskFailure } from '../task-failure.ts';

const NAME_FILE = '/etc/hostname';

/**
 * The kernel's name first: it needs the privilege, without which nothing is changed. The file is
 * written in place, because in some machines it is a mount of its own. @throws TaskFailure
 */
export async function renameHost(hostname: string): Promise<void> {
  try {
    await promisify(execFile)('hostname', [hostname]);
    await writeFile(NAME_FILE, `${hostname}\n`);
  } catch (cause) {
    throw new TaskFailure('RenameFailed', `This machine cannot be named ${hostname}: ${messageOf(cause)}`, { cause });
  }
}
