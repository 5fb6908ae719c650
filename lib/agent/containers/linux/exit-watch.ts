/**
 * Learns how runs end. A monitor writes the exit status of its run to a file in one directory,
 * which is watched. A slow look finds what the watch has missed, and runs whose monitor was killed
 * before it wrote anything. Reports each run once.
 */
import { type FSWatcher, watch } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../platform/log.ts';
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import { signalOfStatus } from '../../machine/exit-status.ts';
import type { ContainerExit } from '../lifecycle.ts';
import type { RunId } from '../runtime.ts';
import { runName } from './container-paths.ts';
import { isAlive, type ProcessId } from './monitor.ts';

interface ExitWatchDeps {
  clock: Clock;
  log: Logger;
  /** Where monitors write exit statuses, each in a file named after the run. */
  exits: string;
  pollMs: number;
  wasOutOfMemory(name: string): Promise<boolean>;
  /** Ends the processes of a run whose monitor was killed. */
  endUnmonitored(run: RunId): Promise<void>;
}

interface WatchedRun {
  run: RunId;
  monitor: ProcessId;
  /** Prevents a second check of the same run at the same time. */
  isBeingLookedAt: boolean;
}

export class ExitWatch {
  readonly #deps: ExitWatchDeps;
  readonly #runs = new Map<string, WatchedRun>();
  readonly #listeners = new Set<(run: RunId, exit: ContainerExit) => void>();
  #watcher: FSWatcher | undefined;
  #timer: Timer | undefined;

  constructor(deps: ExitWatchDeps) {
    this.#deps = deps;
  }

  start(): void {
    const { clock, log, exits, pollMs } = this.#deps;
    this.#watcher = watch(exits, (_, name) => void (name !== null && this.#read(name)));
    this.#watcher.on('error', (err) => log.error({ err }, 'containers: cannot watch for exits; polling'));
    this.#timer = clock.every(pollMs, () => void this.#readAll());
  }

  stop(): void {
    this.#watcher?.close();
    this.#timer?.cancel();
    this.#runs.clear();
  }

  onEnd(listener: (run: RunId, exit: ContainerExit) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Reports the end of this run from now on, also if the run has already ended. */
  add(run: RunId, monitor: ProcessId): void {
    const name = runName(run);
    this.#runs.set(name, { run, monitor, isBeingLookedAt: false });
    void this.#read(name);
  }

  forget(run: RunId): void {
    this.#runs.delete(runName(run));
  }

  has(run: RunId): boolean {
    return this.#runs.has(runName(run));
  }

  /** How a run ended, if its monitor has written that. */
  async exitOf(run: RunId): Promise<ContainerExit | undefined> {
    const { exits, wasOutOfMemory } = this.#deps;
    const name = runName(run);
    const text = await readFile(join(exits, name), 'utf8').catch(() => '');
    if (!/^\d+\s*$/.test(text)) return undefined;
    const status = Number(text);
    // A program may survive the end of its children.
    const outOfMemory = status !== 0 && (await wasOutOfMemory(name)) ? { outOfMemory: true as const } : {};
    const signal = signalOfStatus(status);
    return signal === undefined ? { code: status, ...outOfMemory } : { signal, ...outOfMemory };
  }

  async #read(name: string): Promise<void> {
    const watched = this.#runs.get(name);
    if (watched === undefined || watched.isBeingLookedAt) return;
    watched.isBeingLookedAt = true;
    try {
      const exit = await this.exitOf(watched.run);
      if (exit !== undefined) this.#report(name, watched, exit);
    } finally {
      watched.isBeingLookedAt = false;
    }
  }

  async #readAll(): Promise<void> {
    const written = new Set(await readdir(this.#deps.exits).catch(() => []));
    for (const [name, watched] of [...this.#runs]) {
      if (written.has(name)) await this.#read(name);
      else if (!(await isAlive(watched.monitor))) await this.#endUnmonitored(name, watched);
    }
  }

  async #endUnmonitored(name: string, watched: WatchedRun): Promise<void> {
    const { log, endUnmonitored } = this.#deps;
    if (watched.isBeingLookedAt) return;
    watched.isBeingLookedAt = true;
    try {
      // It may have written the status just before it ended.
      const exit = await this.exitOf(watched.run);
      if (exit === undefined) await endUnmonitored(watched.run);
      this.#report(
        name,
        watched,
        exit ?? { unknown: 'The container was killed because its monitor (conmon) was killed' },
      );
    } catch (err) {
      const fields = { err, container: watched.run.id, container_run: watched.run.number };
      log.error(fields, 'containers: a container without a monitor cannot be ended; the agent tries again');
    } finally {
      watched.isBeingLookedAt = false;
    }
  }

  #report(name: string, watched: WatchedRun, exit: ContainerExit): void {
    if (this.#runs.get(name) !== watched) return;
    this.#runs.delete(name);
    for (const listener of this.#listeners) listener(watched.run, exit);
  }
}
