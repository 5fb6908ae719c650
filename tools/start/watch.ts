/**
 * The supervisor's side of the watchdog: keeps one running, tells it which processes to end if the supervisor vanishes,
 * and keeps the same list in a file, for the case that both vanish: the next start reads it with `leftovers`. A file that
 * cannot be written (disk full) is no reason to fall: the watchdog knows.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Clock, Timer } from '../../lib/ports/clock.ts';
import { isAlive } from '../setup/processes.mjs';
import type { Ending } from './ending.ts';

const restartPauseMs = 500;
const goneLimitMs = 1000;

export class Watch {
  readonly #file: string;
  readonly #endings = new Map<number, Ending>();
  #watchdog: ChildProcess | undefined;
  readonly #clock: Clock;
  #pause: Timer | undefined;
  #closed = false;

  /** @param file where the list is kept. */
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
    this.#tell();
  }

  add(ending: Ending): void {
    this.#endings.set(ending.pid, ending);
    this.#tell();
  }

  remove(pid: number): void {
    if (this.#endings.delete(pid)) this.#tell();
  }

  /** All that is being watched; what `stop` ends. */
  get endings(): Ending[] {
    return [...this.#endings.values()];
  }

  /** Lets the watchdog go, which finds nothing left to end; resolves when it is gone, or does not go. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#pause?.cancel();
    const watchdog = this.#watchdog;
    if (watchdog === undefined || watchdog.exitCode !== null || watchdog.signalCode !== null) return;
    const gone = once(watchdog, 'exit');
    watchdog.stdin?.end();
    await Promise.race([gone, this.#clock.sleep(goneLimitMs)]);
  }

  #tell(): void {
    const list = JSON.stringify(this.endings);
    this.#watchdog?.stdin?.write(`${list}\n`);
    try {
      writeFileSync(`${this.#file}.new`, list, { mode: 0o600 });
      renameSync(`${this.#file}.new`, this.#file);
    } catch {
      // The former list stays; pids in it that are gone are known by their start time.
    }
  }
}

/** What still runs of a supervisor that ended together with its watchdog. */
export function leftovers(file: string): Ending[] {
  try {
    return (JSON.parse(readFileSync(file, 'utf8')) as Ending[]).filter(isAlive);
  } catch {
    return [];
  }
}
