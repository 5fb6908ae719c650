/**
 * One program that the supervisor keeps running: in a process group of its own, its output in a rotated log. Once it has
 * come up it is started again, with a growing pause, whenever it ends, also in order after a signal that was not the
 * supervisor's: restarting an instance is to send it SIGTERM. Before it has come up, its end is for the supervisor to report.
 *
 *     idle ──start()──▶ starting ──keepUp()──▶ up ──ends──▶ pausing ──▶ up        any ──retire()──▶ retired
 *                           └──ends──▶ failed
 */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import type { Clock, Timer } from '../../lib/ports/clock.ts';
import { describeProcess } from '../setup/processes.mjs';
import type { Rank } from './ending.ts';
import type { RotatingLog } from './rotating-log.ts';
import type { Watch } from './watch.ts';

export interface Command {
  file: string;
  args: readonly string[];
  env?: NodeJS.ProcessEnv;
  uid?: number;
  gid?: number;
}

export interface ChildDependencies {
  name: string;
  rank: Rank;
  /** How it is asked to stop. */
  signal: NodeJS.Signals;
  /** Called before each start, so that what must be tidied before one can be. */
  command: () => Command;
  log: RotatingLog;
  watch: Watch;
  clock: Clock;
  /** Told in one sentence of each death and restart. */
  say: (text: string) => void;
}

const pauseMs = { least: 250, most: 10_000, forgottenAfter: 30_000 };
const lastWordsBytes = 4096;

export class Child {
  readonly name: string;
  readonly #deps: ChildDependencies;
  #process: ChildProcess | undefined;
  #pause: Timer | undefined;
  #startedAt = 0;
  #nextPauseMs = pauseMs.least;
  #retired = false;
  #keptUp = false;
  #hasFailed = false;
  #lastWords = '';

  constructor(deps: ChildDependencies) {
    this.name = deps.name;
    this.#deps = deps;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** It ended before it had come up. */
  get hasFailed(): boolean {
    return this.#hasFailed;
  }

  /** The last lines it printed, for a message about why it does not come up. */
  get lastWords(): string {
    return this.#lastWords.trim().split('\n').slice(-5).join('\n');
  }

  start(): void {
    if (this.#retired) return;
    const { rank, signal, watch, clock, name } = this.#deps;
    const child = this.#spawn();
    this.#process = child;
    this.#startedAt = clock.now();
    if (child.pid !== undefined) watch.add({ ...describeProcess(child.pid), name, rank, signal });
    child.stdout?.on('data', (chunk: Buffer) => this.#record(chunk));
    child.stderr?.on('data', (chunk: Buffer) => this.#record(chunk));
    child.once('exit', (code, how) =>
      this.#ended(child, code === 0 ? 'left in order' : `ended with ${how ?? `exit code ${code}`}`),
    );
    child.once('error', (error) => {
      this.#record(Buffer.from(`${error.message}\n`));
      if (child.pid === undefined) this.#ended(child, `ended with ${error.message}`);
    });
  }

  /** It has come up: from here on it is started again when it dies. */
  keepUp(): void {
    this.#keptUp = true;
  }

  /** Sends a signal to what runs of it. */
  ask(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  /** From here on it is not started again; the caller ends what runs. */
  retire(): void {
    this.#retired = true;
    this.#pause?.cancel();
  }

  #spawn(): ChildProcess {
    const { file, args, ...identity } = this.#deps.command();
    const options: SpawnOptions = { ...identity, detached: true, cwd: '/', stdio: ['ignore', 'pipe', 'pipe'] };
    return spawn(file, args, options);
  }

  #record(chunk: Buffer): void {
    this.#deps.log.write(chunk);
    this.#lastWords = (this.#lastWords + chunk.toString('utf8')).slice(-lastWordsBytes);
  }

  #ended(child: ChildProcess, how: string): void {
    const { watch, clock, say } = this.#deps;
    this.#process = undefined;
    if (child.pid !== undefined) watch.remove(child.pid);
    if (this.#retired) return;
    if (!this.#keptUp) {
      this.#hasFailed = true;
      return;
    }
    if (clock.now() - this.#startedAt > pauseMs.forgottenAfter) this.#nextPauseMs = pauseMs.least;
    say(`${this.name} (pid ${child.pid}) ${how}; starting it again in ${this.#nextPauseMs} ms`);
    this.#pause = clock.after(this.#nextPauseMs, () => this.start());
    this.#nextPauseMs = Math.min(this.#nextPauseMs * 2, pauseMs.most);
  }
}
