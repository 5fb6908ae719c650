/**
 * The agent's data directory, which one agent process at a time may use. Each process writes a lock
 * file named after itself and then looks for others. If two start together, at least one sees the
 * other, so they never both continue. A lock file whose process is gone is ignored and removed; the
 * start time in its name distinguishes the process from a later one with the same pid.
 */
import { chmod, lstat, mkdir, readdir, rm, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../platform/errors.ts';
import { removeLeftFiles } from './machine/command-files.ts';
import { processFacts, signalProcess } from './machine/proc.ts';
import { AgentUsageError } from './options.ts';

interface DataDirectory {
  path: string;
  /** Holds the files of running commands; empty when the agent starts. */
  runDirectory: string;
  release(): Promise<void>;
}

const LOCK = /^lock-(\d+)-(\d+)$/;

/** @throws AgentUsageError when another agent uses the directory, or when it cannot be used */
export async function takeDataDirectory(path: string): Promise<DataDirectory> {
  const own = `lock-${process.pid}-${(await processFacts(process.pid))?.startTime ?? '0'}`;
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
    await writeFile(join(path, own), '', { mode: 0o600 });
  } catch (error) {
    throw new AgentUsageError(`--data ${path} cannot be used: ${messageOf(error)}`, error);
  }
  const release = () => unlink(join(path, own)).catch(() => undefined);
  const holder = await otherHolder(path, own);
  if (holder !== undefined) {
    await release();
    throw new AgentUsageError(`Another agent (pid ${holder}) runs on ${path}; stop it or give another --data`);
  }
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

async function otherHolder(path: string, own: string): Promise<number | undefined> {
  for (const name of await readdir(path)) {
    const [, pid, startTime] = LOCK.exec(name) ?? [];
    if (name === own || pid === undefined || startTime === undefined) continue;
    if (await isAlive(Number(pid), startTime)) return Number(pid);
    await unlink(join(path, name)).catch(() => undefined);
  }
  return undefined;
}

async function isAlive(pid: number, startTime: string): Promise<boolean> {
  if (startTime === '0') return signalProcess(pid, 0);
  const facts = await processFacts(pid);
  return facts?.startTime === startTime && facts.state !== 'Z';
}
