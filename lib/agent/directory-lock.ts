/**
 * A lock on a directory, which one process at a time holds. Each process writes a lock file named
 * after itself and then looks for others. If two start together, at least one sees the other, so
 * they never both continue. A lock file whose process is gone is ignored and removed; the start
 * time in its name distinguishes the process from a later one with the same pid.
 */
import { readdir, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { processFacts, signalProcess } from './machine/proc.ts';

export interface DirectoryLock {
  /** The process that holds it, if that is another one. Then this process does not have it. */
  holder: number | undefined;
  release(): Promise<void>;
}

const LOCK = /^lock-(\d+)-(\d+)$/;

export async function takeDirectoryLock(directory: string): Promise<DirectoryLock> {
  const own = `lock-${process.pid}-${(await processFacts(process.pid))?.startTime ?? '0'}`;
  await writeFile(join(directory, own), '', { mode: 0o600 });
  const release = () => unlink(join(directory, own)).catch(() => undefined);
  const holder = await lockHolder(directory, own);
  if (holder !== undefined) await release();
  return { holder, release };
}

/**
 * The living process that has locked the directory; undefined if none has. @param own is left out
 */
export async function lockHolder(directory: string, own?: string): Promise<number | undefined> {
  for (const name of await readdir(directory)) {
    const [, pid, startTime] = LOCK.exec(name) ?? [];
    if (name === own || pid === undefined || startTime === undefined) continue;
    if (await isAlive(Number(pid), startTime)) return Number(pid);
    await unlink(join(directory, name)).catch(() => undefined);
  }
  return undefined;
}

async function isAlive(pid: number, startTime: string): Promise<boolean> {
  if (startTime === '0') return signalProcess(pid, 0);
  const facts = await processFacts(pid);
  return facts?.startTime === startTime && facts.state !== 'Z';
}
