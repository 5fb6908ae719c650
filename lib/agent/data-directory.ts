/** The agent's data directory, which one agent process at a time may use. */
import { chmod, lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../platform/errors.ts';
import { type DirectoryLock, takeDirectoryLock } from './directory-lock.ts';
import { removeLeftFiles } from './machine/command-files.ts';
import { AgentUsageError } from './usage-error.ts';

interface DataDirectory {
  path: string;
  /** Holds the files of running commands; empty when the agent starts. */
  runDirectory: string;
  release(): Promise<void>;
}

/** @throws AgentUsageError when another agent uses the directory, or when it cannot be used */
export async function takeDataDirectory(path: string): Promise<DataDirectory> {
  const { holder, release } = await lock(path);
  if (holder !== undefined)
    throw new AgentUsageError(`Another agent (pid ${holder}) runs on ${path}; stop it or give another --data`);
  const runDirectory = join(path, 'run');
  await removeLeftFiles(runDirectory);
  await rm(runDirectory, { recursive: true, force: true });
  await mkdir(runDirectory, { mode: 0o700 });
  return { path, runDirectory, release };
}

/**
 * Lets users pass the directory without listing it: root of a container is such a user. First, what
 * is in it is closed to them, also what somebody else has put there.
 * @throws AgentUsageError when the modes cannot be changed
 */
export async function allowTraversal(path: string): Promise<void> {
  try {
    for (const { name } of await readdir(path, { withFileTypes: true })) await closeToOthers(join(path, name));
    const { mode } = await lstat(path);
    await chmod(path, (mode & 0o700) | 0o011);
  } catch (error) {
    throw new AgentUsageError(`--containers: the modes of --data ${path} cannot be set: ${messageOf(error)}`, error);
  }
}

/** Where a link leads is not in the directory. */
async function closeToOthers(path: string): Promise<void> {
  const found = await lstat(path);
  if ((found.isFile() || found.isDirectory()) && (found.mode & 0o077) !== 0) await chmod(path, found.mode & 0o700);
}

async function lock(path: string): Promise<DirectoryLock> {
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
    return await takeDirectoryLock(path);
  } catch (error) {
    throw new AgentUsageError(`--data ${path} cannot be used: ${messageOf(error)}`, error);
  }
}
