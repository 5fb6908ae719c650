/**
 * The supervisor's side of the watchdog. It keeps a watchdog running and sends it the list of
 * processes to end if the supervisor disappears. It also keeps the list in a file, in case both
 * disappear: then leftovers.ts reads it. When the file cannot be written (disk full),
 * the supervisor continues, because the watchdog has the list.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Clock, Timer } from '../../lib/platform/time/clock.ts';
import { isAlive } from '../setup/processes.mjs';
import type { Ending } from './end-processes.ts';

const restartPauseMs = 500;
const goneLimitMs = 1000;

export class WatchdogClient {
  readonly #file: string;
  readonly #endings = new Map<number, Ending>();
  #watchdog: ChildProcess | undefined;
  readonly #clock: Clock;
  #pause: Timer | undefined;
  #closed = false;

  /** @param file the path of the list */
  constructor(file: string, clock: Clock) {
    this.#file = file;
    this.#clock = clock;
  }

  start(): void {
    const program = path.join(import.meta.dirname, 'watchdog.ts');
    const watchdog = spawn(process.execPath, [...process.execArgv, program], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      cwd: '/',
    });
    this.#watchdog = watchdog;
    watchdog.stdin?.on('error', () => undefined);
    watchdog.once('error', () => undefined);
    watchdog.once('exit', () => {
      if (!this.#closed) this.#pause = this.#clock.after(restartPauseMs, () => this.start());
    });
    this.#writeList();
  }

  add(ending: Ending): void {
    this.#endings.set(ending.pid, ending);
    this.#writeList();
  }

  remove(pid: number): void {
    if (this.#endings.delete(pid)) this.#writeList();
  }

  /** All processes in the list; `stop` ends them. */
  get endings(): Ending[] {
    return [...this.#endings.values()];
  }

  /**
   * Closes the watchdog's pipe; the watchdog finds nothing left to end. Resolves when it is gone,
   * or after a time limit.
   */
  async close(): Promise<void> {
    this.#closed = true;
    this.#pause?.cancel();
    const watchdog = this.#watchdog;
    if (watchdog === undefined || watchdog.exitCode !== null || watchdog.signalCode !== null) return;
    const gone = once(watchdog, 'exit');
    watchdog.stdin?.end();
    await Promise.race([gone, this.#clock.sleep(goneLimitMs)]);
  }

  #writeList(): void {
    const list = JSON.stringify(this.endings);
    this.#watchdog?.stdin?.write(`${list}\n`);
    try {
      writeFileSync(`${this.#file}.new`, list, { mode: 0o600 });
      renameSync(`${this.#file}.new`, this.#file);
    } catch {
      // The previous list stays; start times show which of its pids are gone.
    }
  }
}

/** Returns the processes in a supervisor's list that still run. */
export function processesIn(file: string): Ending[] {
  try {
    return (JSON.parse(readFileSync(file, 'utf8')) as Ending[]).filter(isAlive);
  } catch {
    return [];
  }
}
