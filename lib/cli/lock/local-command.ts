/**
 * A command on this machine, for `cnapi lock`. It is started with our input and output, and stopped
 * (TERM, then KILL) when it may not continue. Without a terminal it has its own process group, so
 * that the whole group is stopped. At a terminal it stays in our group, because it could not read
 * from the terminal otherwise; then only the command itself is stopped.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Clock } from '../../platform/time/clock.ts';
import { exitCodeOfSignal } from '../terminal/signals.ts';

interface LocalCommandDeps {
  clock: Clock;
  env: NodeJS.ProcessEnv;
}

/** The codes of env(1) and timeout(1). */
const CANNOT_RUN = 126;
const NOT_FOUND = 127;

export class LocalCommand {
  readonly #clock: Clock;
  readonly #child: ChildProcess;
  readonly #isGroup: boolean;
  /** The exit code as a shell counts it; 126 or 127 when the command could not be run. */
  readonly ended: Promise<number>;
  #hasEnded = false;

  constructor(argv: readonly string[], { clock, env }: LocalCommandDeps) {
    this.#clock = clock;
    const [file = '', ...args] = argv;
    this.#isGroup = process.stdin.isTTY !== true;
    this.#child = spawn(file, args, { stdio: 'inherit', detached: this.#isGroup, env });
    this.ended = this.#end(file);
  }

  /** The command has already received a signal that came from the keyboard. */
  forward(signal: NodeJS.Signals): void {
    if (this.#isGroup || signal !== 'SIGINT') this.#kill(signal);
  }

  /**
   * Called when this program is stopped. On a terminal the command has already received Ctrl-Z and
   * may need to clean up before it stops, so it is not sent STOP.
   */
  onStop(): void {
    if (this.#isGroup) this.pause();
  }

  /** Stops the command with SIGSTOP until `resume`. */
  pause(): void {
    this.#kill('SIGSTOP');
  }

  resume(): void {
    this.#kill('SIGCONT');
  }

  /**
   * Sends TERM, and KILL after `killAfterMs`, also to a paused command. Resolves when it has ended.
   */
  async stop(killAfterMs: number): Promise<void> {
    const start = this.#clock.now();
    this.#kill('SIGTERM');
    this.resume();
    const timer = this.#clock.after(killAfterMs, () => this.#kill('SIGKILL'));
    await this.ended;
    timer.cancel();
    // Processes that the command started may still run; they get no more time than the command
    // itself.
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

  /** Returns false when no process of the group is left. */
  #signalGroup(signal: NodeJS.Signals): boolean {
    try {
      if (this.#child.pid !== undefined) process.kill(-this.#child.pid, signal);
      return this.#child.pid !== undefined;
    } catch {
      return false;
    }
  }
}
