/**
 * The files of one container's log, in a directory of their own. The monitor writes to `current`
 * and replaces it with a new file: when the agent asks for that, and by itself at `monitorLimit`.
 * Each file also has a number as a second name. The agent links it as soon as it sees the file, so
 * a file that the monitor replaces is kept. The directory is removed with the container.
 *
 * Only a file that the monitor replaces before the agent sees it is lost. While no agent runs, only
 * the newest two are kept. While one runs, it must stall until a container has written
 * `monitorLimit`.
 */
import { link, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { ContainerSpec } from '../container.ts';
import { askMonitor, REOPEN_LOG } from '../linux/monitor-control.ts';

export interface CurrentLog {
  inode: number;
  size: number;
}

const CURRENT = 'current';
/** conmon writes some 50 MB/s, so an agent that stalls for a second still sees each file. */
const MIN_MONITOR_LIMIT = 64 * 1024 * 1024;

export const currentLog = (directory: string): string => join(directory, CURRENT);

/**
 * The monitor begins a new file by itself after this number of bytes. Files that the agent asked
 * for do not reset its count.
 */
export const monitorLimit = ({ maxBytes }: ContainerSpec['log']): number => Math.max(2 * maxBytes, MIN_MONITOR_LIMIT);

export class LogFiles {
  readonly directory: string;
  readonly #control: string;

  /** `control`: the monitor's pipe for requests. */
  constructor(directory: string, control: string) {
    this.directory = directory;
    this.#control = control;
  }

  pathOf(number: number): string {
    return join(this.directory, `${number}`);
  }

  /** The numbers of all files, the oldest first. Empty if there is no log. */
  async numbers(): Promise<number[]> {
    const names = await readdir(this.directory).catch(orIfGone<string[]>([]));
    return names
      .filter((name) => /^[1-9]\d{0,14}$/.test(name))
      .map(Number)
      .sort((a, b) => a - b);
  }

  async current(): Promise<CurrentLog | undefined> {
    const found = await stat(currentLog(this.directory)).catch(orIfGone(undefined));
    return found && { inode: found.ino, size: found.size };
  }

  /**
   * Gives the current file its number, if it has none. Returns all numbers, and the current file as
   * it was when it had the last of them.
   */
  async adopt(): Promise<{ numbers: number[]; current: CurrentLog | undefined }> {
    for (;;) {
      const current = await this.current();
      const numbers = await this.numbers();
      const newest = numbers.at(-1) ?? 0;
      if (current === undefined) return { numbers, current };
      const known = newest === 0 ? undefined : await stat(this.pathOf(newest)).catch(orIfGone(undefined));
      if (known?.ino === current.inode) return { numbers, current };
      // Another reader may have done it meanwhile, or the monitor replaces the file.
      await link(currentLog(this.directory), this.pathOf(newest + 1)).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'EEXIST' && error.code !== 'ENOENT') throw error;
      });
    }
  }

  /** Zero if there is no such file. */
  async sizeOf(number: number | undefined): Promise<number> {
    if (number === undefined) return 0;
    return (await stat(this.pathOf(number)).catch(orIfGone(undefined)))?.size ?? 0;
  }

  /** Asks the monitor for a new file. False if no monitor runs. */
  reopen(): Promise<boolean> {
    return askMonitor(this.#control, REOPEN_LOG);
  }

  /** Removes the oldest files. */
  async prune(maxFiles: number): Promise<void> {
    const numbers = await this.numbers();
    for (const number of numbers.slice(0, -maxFiles)) await rm(this.pathOf(number), { force: true });
  }
}

const orIfGone =
  <Value>(value: Value) =>
  (error: NodeJS.ErrnoException): Value => {
    if (error.code === 'ENOENT') return value;
    throw error;
  };
