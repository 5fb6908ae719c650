/** Removes directories whose contents somebody else has written. */
import { unlink } from 'node:fs/promises';
import { ContainerError } from '../container-errors.ts';
import { lstatIfAny } from './lstat.ts';
import { mountPointsAt } from './mounts.ts';
import { LONG_TIMEOUT_MS, runOrThrow } from './program.ts';

/**
 * Idempotent. Never removes through a link or a mount. Uses `rm`, because a container can make
 * paths that are longer than a system call takes, and because `rm` stays on one file system if
 * something is mounted meanwhile. @throws ContainerError
 */
export async function removeTree(path: string): Promise<void> {
  const stats = await lstatIfAny(path);
  if (stats === undefined) return;
  if (!stats.isDirectory()) return unlink(path);
  const [mounted] = await mountPointsAt(path);
  if (mounted !== undefined)
    throw new ContainerError(`${path} cannot be removed: something is mounted at ${mounted}; unmount it`);
  await runOrThrow('rm', ['-r', '-f', '--one-file-system', '--', path], { timeoutMs: LONG_TIMEOUT_MS });
}
