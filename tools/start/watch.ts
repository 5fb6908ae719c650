/**
 * The supervisor's side of the watchdog: keeps one running, tells it which processes to end if the supervisor vanishes,
 * and keeps the same list in a file, for the case that both vanish: the next start reads it with `leftovers`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Clock, Timer } from '../../lib/ports/clock.ts';
import { isAlive } from '../setup/processes.mjs';
import type { Ending } from './ending.ts';

const restartPauseMs = 500;

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

  /** Lets the watchdog go: it finds nothing left to end. */
  close(): void {
    this.#closed = true;
    this.#pause?.cancel();
    this.#watchdog?.stdin?.end();
  }

  #tell(): void {
    const list = JSON.stringify(this.endings);
    this.#watchdog?.stdin?.write(`${list}\n`);
    writeFileSync(`${this.#file}.new`, list, { mode: 0o600 });
    renameSync(`${this.#file}.new`, this.#file);
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
