/**
 * One program under test as a process of its own: started, killed, frozen, thawed and started again at will. Its log goes to
 * a file, which is shown when the test fails. Ends with the test process at the latest.
 *
 *     new ──start()──▶ running ──freeze()──▶ frozen ──thaw()──▶ running
 *     running, frozen ──kill(), or it ends by itself──▶ ended ──start()──▶ running
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Writable } from 'node:stream';
import { guard } from './guardian.ts';

const root = path.resolve(import.meta.dirname, '../..');

export interface ProgramPlan {
  name: string;
  /** Relative to the project. */
  file: string;
  args: readonly string[];
  /** For Node itself. */
  nodeArgs: readonly string[];
  logFile: string;
}

/** One line of a program's log (bunyan). */
export type LogLine = Record<string, unknown> & { msg: string; time: string };

export class Program {
  readonly name: string;
  readonly #plan: ProgramPlan;
  #child: ChildProcess | undefined;
  #isFrozen = false;
  /** Since when it has been running, neither dead nor frozen. */
  runsSince = 0;

  constructor(plan: ProgramPlan) {
    this.name = plan.name;
    this.#plan = plan;
  }

  get pid(): number {
    if (this.#child?.pid === undefined || !this.isAlive) throw new Error(`${this.name} is not running`);
    return this.#child.pid;
  }

  get isAlive(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Of the process that ended last, if it ended by itself. */
  get exitCode(): number | null | undefined {
    return this.#child?.exitCode;
  }

  get isFrozen(): boolean {
    return this.#isFrozen;
  }

  /** Its process runs: it answers, if it is well. */
  get isRunning(): boolean {
    return this.isAlive && !this.#isFrozen;
  }

  start(): void {
    if (this.isAlive) throw new Error(`${this.name} is running already`);
    const { file, args, nodeArgs, logFile } = this.#plan;
    const log = openSync(logFile, 'a');
    this.#isFrozen = false;
    this.runsSince = Date.now();
    this.#child = spawn(process.execPath, [...nodeArgs, path.join(root, file), ...args], {
      cwd: root,
      stdio: ['pipe', log, log],
    });
    closeSync(log);
    this.#child.stdin?.on('error', () => undefined);
    guard(this.#child);
  }

  /** As `kill -9`, or as another signal would; resolves when it is gone. Harmless when it is. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (child === undefined || !this.isAlive) return;
    const gone = once(child, 'exit');
    child.kill(signal);
    await gone;
    this.#isFrozen = false;
  }

  /** Resolves when it is gone, whoever or whatever ended it. */
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
    this.runsSince = Date.now();
  }

  /** A line on its stdin. */
  say(line: string): void {
    (this.#child?.stdin as Writable | null)?.write(`${line}\n`);
  }

  /** What it has logged, over all its lives; lines that are not bunyan's (a stack on stderr) stand with `msg` alone. */
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
