/**
 * One program that the supervisor keeps running, in its own process group, with its output in a
 * rotated log. After it has come up, it is restarted with a growing pause whenever it ends, also
 * after an orderly exit by a signal that the supervisor did not send: to restart an instance, send
 * it SIGTERM. If it ends before it has come up, the supervisor reports that.
 *
 *      idle ──start()──▶ starting ──keepUp()──▶ up ──ends──▶ pausing ──▶ up
 *                            └──ends──▶ failed                     any ──retire()──▶ retired
 */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import type { Clock, Timer } from '../../lib/platform/time/clock.ts';
import { describeProcess } from '../setup/processes.mjs';
import type { Rank } from './end-processes.ts';
import type { RotatingLog } from './rotating-log.ts';
import type { WatchdogClient } from './watchdog-client.ts';

export interface Command {
  file: string;
  args: readonly string[];
  env?: NodeJS.ProcessEnv;
  uid?: number;
  gid?: number;
}

export interface ChildDeps {
  name: string;
  rank: Rank;
  /** The signal that asks it to stop. */
  signal: NodeJS.Signals;
  /** Called before each start; it may tidy up first. */
  command: () => Command;
  log: RotatingLog;
  watch: WatchdogClient;
  clock: Clock;
  /** Called with a sentence for each end and restart. */
  say: (text: string) => void;
  /** Called when it has been started again, with the time at which it had ended. */
  onRestart?: ((endedAt: number) => void) | undefined;
}

const pauseMs = { least: 250, most: 10_000, forgottenAfter: 30_000 };
const lastWordsBytes = 4096;

export class Child {
  readonly name: string;
  readonly #deps: ChildDeps;
  #process: ChildProcess | undefined;
  #pause: Timer | undefined;
  #startedAt = 0;
  #nextPauseMs = pauseMs.least;
  #retired = false;
  #keptUp = false;
  #hasFailed = false;
  #lastWords = '';

  constructor(deps: ChildDeps) {
    this.name = deps.name;
    this.#deps = deps;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** True when it ended before it had come up. */
  get hasFailed(): boolean {
    return this.#hasFailed;
  }

  /** The last lines of its output, for a message about why it does not come up. */
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

  /** Marks it as up: from now on it is restarted when it ends. */
  keepUp(): void {
    this.#keptUp = true;
  }

  /** Sends a signal to its process. */
  ask(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  /** Ends the restarts of the program. The caller ends its process. */
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
    const { watch, clock, say, onRestart } = this.#deps;
    const endedAt = clock.now();
    this.#process = undefined;
    if (child.pid !== undefined) watch.remove(child.pid);
    if (this.#retired) return;
    if (!this.#keptUp) {
      this.#hasFailed = true;
      return;
    }
    if (endedAt - this.#startedAt > pauseMs.forgottenAfter) this.#nextPauseMs = pauseMs.least;
    say(`${this.name} (pid ${child.pid}) ${how}; starting it again in ${this.#nextPauseMs} ms`);
    this.#pause = clock.after(this.#nextPauseMs, () => {
      this.start();
      onRestart?.(endedAt);
    });
    this.#nextPauseMs = Math.min(this.#nextPauseMs * 2, pauseMs.most);
  }
}
