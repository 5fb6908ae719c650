/** Programs that make root file systems: mount, umount, tar, cp, rm, sync. */
import { ContainerError } from '../container-errors.ts';
import { findProgram, type ProgramOptions, runToEnd } from '../linux/programs.ts';

const TIMEOUT_MS = 30_000;
/** The time limit of programs that work on many files. */
export const LONG_TIMEOUT_MS = 600_000;
const COPY = ['--archive', '--reflink=auto', '--no-target-directory', '--'];
const MAX_SHOWN_CHARS = 500;
/** What the programs print in the C locale when the disk is full. */
const FULL = /No space left on device|Disk quota exceeded/;
/**
 * Without LIBMOUNT_FORCE_MOUNT2, libmount of util-linux 2.39 refuses overlay options of more than
 * 255 bytes.
 */
const ENVIRONMENT = { LC_ALL: 'C', LIBMOUNT_FORCE_MOUNT2: 'always' };

/**
 * @throws ContainerError with what the program said; its cause has the code ENOSPC if the disk is
 * full
 */
export async function runOrThrow(
  name: string,
  args: readonly string[],
  options: Partial<ProgramOptions> = {},
): Promise<void> {
  const file = await findProgram(name);
  if (file === undefined) throw new ContainerError(`This server has no program ${name}; install it`);
  const { exitCode, stderr } = await runToEnd(file, args, { timeoutMs: TIMEOUT_MS, env: ENVIRONMENT, ...options });
  if (exitCode === 0) return;
  const text = stderr.trim().slice(0, MAX_SHOWN_CHARS) || `exit code ${exitCode}`;
  const cause = FULL.test(text) ? Object.assign(new Error(text), { code: 'ENOSPC' }) : undefined;
  throw new ContainerError(`${name} failed: ${text}`, cause);
}

/** Copies the contents of a directory into another one, which may exist. @throws ContainerError */
export const copyTree = (from: string, to: string): Promise<void> =>
  runOrThrow('cp', [...COPY, from, to], { timeoutMs: LONG_TIMEOUT_MS });

/**
 * Resolves when all writes are on disk. Some disks tell only here that they are full. @throws
 * ContainerError
 */
export const syncFiles = (path: string): Promise<void> =>
  runOrThrow('sync', ['--file-system', path], { timeoutMs: LONG_TIMEOUT_MS });
