/**
 * Folders for tests that mount. At the end everything below is unmounted, and the folder deleted.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, realpath } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Test } from 'tap';
import { lacks } from './debian-programs.ts';

const run = promisify(execFile);

/** Why tests that change owners and mount are skipped; false when they can run. */
export function cannotMount(...programs: readonly string[]): string | false {
  const needs = lacks('mount', 'umount', 'tar', 'cp', 'rm', 'sync', ...programs);
  if (needs !== false) return needs;
  const isRoot = process.geteuid?.() === 0 || process.env.CNAPI_TEST_NO_SKIP === '1';
  return isRoot ? false : 'only root can change owners and mount';
}

export async function mountedFolder(t: Test): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'cnapi-root-')));
  t.teardown(async () => {
    for (const point of (await mountsBelow(folder)).reverse()) await run('umount', ['--lazy', point]);
    // It also removes paths that are too long for a system call.
    await run('rm', ['-rf', '--one-file-system', folder]);
  });
  return folder;
}

/** A file system in memory of that many bytes, mounted on a new folder. */
export async function smallDisk(t: Test, bytes: number): Promise<string> {
  const folder = await mountedFolder(t);
  await run('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'tmpfs', folder]);
  return folder;
}

/** Mount points at or below a folder, the first mounted first. */
export async function mountsBelow(folder: string): Promise<string[]> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  const points = table.split('\n').map((line) => line.split(' ')[4] ?? '');
  return points.filter((point) => point === folder || point.startsWith(`${folder}/`));
}
