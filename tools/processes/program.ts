/**
 * One program as a separate process, for tests and the benchmark. It can be started, killed,
 * frozen, thawed and restarted; it is not restarted automatically. Its log goes to a file. It ends
 * with this process at the latest.
 *
 *      new ──start()──▶ running ──freeze()──▶ frozen ──thaw()──▶ running
 *      running, frozen ──kill(), or it exits──▶ ended ──start()──▶ running
 */

import type { Serializable } from 'node:child_process';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Writable } from 'node:stream';
import { systemClock } from '../../lib/platform/time/clock.ts';
import type { Command } from '../start/child.ts';
import { guard } from './guardian.ts';

const root = path.resolve(import.meta.dirname, '../..');

export interface ProgramPlan {
  name: string;
  command: Command;
  logFile: string;
  /** Receives the messages of a Node program. */
  onMessage?: (message: unknown) => void;
}

/**
 * A program of this project under this same Node; `from` may be the folder of another version of
 * it.
 */
export function ownProgram(
  file: string,
  args: readonly string[],
  nodeArgs: readonly string[] = [],
  from: string = root,
): Command {
  return { file: process.execPath, args: [...nodeArgs, path.join(from, file), ...args] };
}

/** One line of a program's log (bunyan). */
export type LogLine = Record<string, unknown> & { msg: string; time: string };

export class Program {
  readonly name: string;
  readonly #plan: ProgramPlan;
  #command: Command;
  #child: ChildProcess | undefined;
  #isFrozen = false;
  /** Since when it has been running, neither ended nor frozen. */
  runsSince = 0;

  constructor(plan: ProgramPlan) {
    this.name = plan.name;
    this.#plan = plan;
    this.#command = plan.command;
  }

  get pid(): number {
    if (this.#child?.pid === undefined || !this.isAlive) throw new Error(`${this.name} is not running`);
    return this.#child.pid;
  }

  get isAlive(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Exit code of the process that ended last, if it exited without a signal. */
  get exitCode(): number | null | undefined {
    return this.#child?.exitCode;
  }

  get isFrozen(): boolean {
    return this.#isFrozen;
  }

  /** True when the process is alive and not frozen. */
  get isRunning(): boolean {
    return this.isAlive && !this.#isFrozen;
  }

  /** Sets the command for the next start. */
  become(command: Command): void {
    this.#command = command;
  }

  start(): void {
    if (this.isAlive) throw new Error(`${this.name} is running already`);
    const { logFile, onMessage } = this.#plan;
    const { file, args, ...identity } = this.#command;
    const log = openSync(logFile, 'a');
    this.#isFrozen = false;
    this.runsSince = systemClock.wallTime();
    this.#child = spawn(file, args, {
      ...identity,
      // Another user may have no access to our folder.
      cwd: identity.uid === undefined ? root : '/',
      stdio: ['pipe', log, log, ...(onMessage === undefined ? [] : (['ipc'] as const))],
    });
    closeSync(log);
    this.#child.stdin?.on('error', () => undefined);
    if (onMessage !== undefined) this.#child.on('message', onMessage);
    guard(this.#child);
  }

  /**
   * Sends SIGKILL or another signal; resolves when the process is gone. Does nothing when it is
   * already gone.
   */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (child === undefined || !this.isAlive) return;
    const gone = once(child, 'exit');
    child.kill(signal);
    await gone;
    this.#isFrozen = false;
  }

  /** Resolves when the process is gone, for any reason. */
  async ended(): Promise<void> {
    if (this.isAlive) await once(this.#child as ChildProcess, 'exit');
  }

  freeze(): void {
    process.kill(this.pid, 'SIGSTOP');
    this.#isFrozen = true;
  }

  thaw(): void {
    process.kill(this.pid, 'SIGCONT');
    this.#isFrozen = false;
    this.runsSince = systemClock.wallTime();
  }

  /** Writes a line to its stdin. */
  say(line: string): void {
    (this.#child?.stdin as Writable | null)?.write(`${line}\n`);
  }

  /** Sends a message to a Node program. @throws when it has ended */
  send(message: Serializable): void {
    if (!this.isAlive) throw new Error(`${this.name} is not running`);
    this.#child?.send(message, () => undefined);
  }

  /** Calls `listener` once, when the process that runs now has ended. */
  onceEnded(listener: () => void): void {
    this.#child?.once('exit', listener);
  }

  /**
   * Returns the log of all its runs; a line that is not bunyan's (a stack on stderr) has only
   * `msg`.
   */
  log(): LogLine[] {
    return readFileSync(this.#plan.logFile, 'utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => {
        try {
          return JSON.parse(line) as LogLine;
        } catch {
          return { msg: line, time: '' };
        }
      });
  }

  /** Resident memory in MiB. */
  residentMib(): number {
    const status = readFileSync(`/proc/${this.pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) / 1024;
  }
}
