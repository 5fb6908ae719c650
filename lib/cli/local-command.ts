/**
 * A command on this machine, for `cnapi lock`: started with our own input and output, and stopped (TERM, then KILL) when it
 * may not go on. Without a terminal it has a process group of its own, so that all of it is stopped; at a terminal it
 * stays in ours, or it could not read from there, and then it is the command itself that is stopped.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Clock } from '../ports/clock.ts';
import { exitCodeOfSignal } from './signals.ts';

export interface LocalCommandDependencies {
  clock: Clock;
  env: NodeJS.ProcessEnv;
}

/** As env(1) and timeout(1) have it. */
const CANNOT_RUN = 126;
const NOT_FOUND = 127;

export class LocalCommand {
  readonly #clock: Clock;
  readonly #child: ChildProcess;
  readonly #isGroup: boolean;
  /** The exit code as a shell counts it; 126 and 127 when it could not be run. */
  readonly ended: Promise<number>;
  #hasEnded = false;

  constructor(argv: readonly string[], { clock, env }: LocalCommandDependencies) {
    this.#clock = clock;
    const [file = '', ...args] = argv;
    this.#isGroup = process.stdin.isTTY !== true;
    this.#child = spawn(file, args, { stdio: 'inherit', detached: this.#isGroup, env });
    this.ended = this.#end(file);
  }

  /** What came from the keyboard the command has had by itself. */
  forward(signal: NodeJS.Signals): void {
    if (this.#isGroup || signal !== 'SIGINT') this.#kill(signal);
  }

  /** At a terminal Ctrl-Z has reached it by itself, and it may want to tidy up before it stands still. */
  onStop(): void {
    if (this.#isGroup) this.pause();
  }

  /** Stands still until `resume`. */
  pause(): void {
    this.#kill('SIGSTOP');
  }

  resume(): void {
    this.#kill('SIGCONT');
  }

  /** TERM, and KILL after `killAfterMs`, whether it stands still or not; resolves when it has ended. */
  async stop(killAfterMs: number): Promise<void> {
    const start = this.#clock.now();
    this.#kill('SIGTERM');
    this.resume();
    const timer = this.#clock.after(killAfterMs, () => this.#kill('SIGKILL'));
    await this.ended;
    timer.cancel();
    // What it has started may have outlived it; it gets no more time than the command itself.
    if (this.#isGroup && this.#signalGroup('SIGTERM')) {
      await this.#clock.sleep(Math.min(start + killAfterMs - this.#clock.now(), 500));
      this.#signalGroup('SIGKILL');
    }
  }

  async #end(file: string): Promise<number> {
    try {
      const [code, signal] = (await once(this.#child, 'exit')) as [number | null, NodeJS.Signals | null];
      return code ?? exitCodeOfSignal(signal ?? '');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      process.stderr.write(`cnapi: ${JSON.stringify(file)} cannot be run: ${(error as Error).message}\n`);
      return code === 'ENOENT' ? NOT_FOUND : CANNOT_RUN;
    } finally {
      this.#hasEnded = true;
    }
  }

  #kill(signal: NodeJS.Signals): void {
    if (this.#hasEnded) return;
    if (this.#isGroup) this.#signalGroup(signal);
    else this.#child.kill(signal);
  }

  /** False when nobody of the group is left. */
  #signalGroup(signal: NodeJS.Signals): boolean {
    try {
      if (this.#child.pid !== undefined) process.kill(-this.#child.pid, signal);
      return this.#child.pid !== undefined;
    } catch {
      return false;
    }
  }
}
