/**
 * The programs that the supervisor runs, each a Child with its own log. Used by the supervisor and
 * by its instances, which are added and removed while everything else stays.
 */
import path from 'node:path';
import type { Clock } from '../../lib/platform/time/clock.ts';
import { Child, type Command } from './child.ts';
import { endInOrder, type Rank } from './end-processes.ts';
import { Refusal } from './refusal.ts';
import { RotatingLog } from './rotating-log.ts';
import type { WatchdogClient } from './watchdog-client.ts';

export interface Wanted {
  name: string;
  rank: Rank;
  /** The signal that asks it to stop when everything stops. */
  signal?: NodeJS.Signals;
  command: () => Command;
  /** Called when it has been started again, with the time at which it had ended. */
  onRestart?: (endedAt: number) => void;
}

export interface ChildrenDeps {
  /** Logs are in `DATA/log`. */
  data: string;
  watch: WatchdogClient;
  clock: Clock;
  /** Aborts when everything stops: then nothing is started or awaited any more. */
  stopping: AbortSignal;
  say: (text: string) => void;
  /** Time limit for coming up. */
  startLimitMs?: number;
}

const pollMs = 25;

export class Children {
  readonly #deps: ChildrenDeps;
  readonly #startLimitMs: number;
  readonly #running = new Set<Child>();
  readonly #logs = new Map<string, RotatingLog>();

  constructor(deps: ChildrenDeps) {
    this.#deps = deps;
    this.#startLimitMs = deps.startLimitMs ?? 60_000;
  }

  run({ name, rank, signal = 'SIGTERM', command, onRestart }: Wanted): Child {
    const { watch, clock, say, stopping } = this.#deps;
    const log = this.#logOf(name);
    const child = new Child({ name, rank, signal, command, log, watch, clock, say, onRestart });
    this.#running.add(child);
    if (!stopping.aborted) child.start();
    return child;
  }

  /**
   * Resolves when `isUp`, or when everything stops.
   * @throws Refusal with the child's last words when it ends or is late
   */
  async untilUp(child: Child, isUp: () => Promise<boolean>): Promise<void> {
    const { clock, stopping } = this.#deps;
    const deadline = clock.now() + this.#startLimitMs;
    while (!stopping.aborted) {
      if (child.hasFailed || clock.now() > deadline) throw await this.#failureOf(child);
      if (await isUp()) return child.keepUp();
      await clock.sleep(pollMs, stopping);
    }
  }

  /**
   * Stops a child for good: its process is asked to stop, and killed if it does not. Does nothing
   * when it is already gone.
   */
  async dismiss(child: Child): Promise<void> {
    child.retire();
    await this.end(child);
    this.#running.delete(child);
    this.#logs.get(child.name)?.close();
  }

  /** Ends its process now; a child that is not retired is restarted. */
  async end(child: Child): Promise<void> {
    const { watch, clock } = this.#deps;
    await endInOrder(
      watch.endings.filter(({ pid }) => pid === child.pid),
      clock,
    );
  }

  /** Stops all children in order. */
  async stop(): Promise<void> {
    const { watch, clock } = this.#deps;
    for (const child of this.#running) child.retire();
    await endInOrder(watch.endings, clock);
  }

  closeLogs(): void {
    for (const log of this.#logs.values()) log.close();
  }

  #logOf(name: string): RotatingLog {
    const log = this.#logs.get(name) ?? new RotatingLog(this.#logFileOf(name));
    this.#logs.set(name, log);
    return log;
  }

  #logFileOf(name: string): string {
    return path.join(this.#deps.data, 'log', `${name}.log`);
  }

  async #failureOf(child: Child): Promise<Refusal> {
    // Its last output may still be in the pipe.
    await this.#deps.clock.sleep(4 * pollMs);
    const how = child.hasFailed ? 'ended while it was starting' : `did not come up in ${this.#startLimitMs / 1000} s`;
    const log = this.#logFileOf(child.name);
    return new Refusal(`${child.name} ${how} (all of it: ${log}); its last words:\n${child.lastWords}`);
  }
}
