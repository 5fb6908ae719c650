/**
 * One process of the simulated world: its clock, its chance, and the gate through which everything
 * comes in. A dead one hears nothing any more and asks for nothing; a frozen one hears it all when
 * it thaws, timers first, each late, as a real one. One whose work takes time hears it when it is
 * done with what came before (`sim-loop.ts`).
 *
 *     running ──freeze──▶ frozen ──thaw──▶ running        any ──kill──▶ dead
 */
import type { Clock, Timer } from '../../lib/platform/time/clock.ts';
import type { SeededRandom } from './seeded-random.ts';
import { SimLoop } from './sim-loop.ts';
import { PHASE, type Phase, type VirtualTime } from './virtual-time.ts';

/** The origin of virtual time, on every wall clock and in the database. */
export const EPOCH_MS = 1_700_000_000_000;
const TIMER_JITTER_MS = 0.8;

export interface ProcessDeps {
  name: string;
  time: VirtualTime;
  random: SeededRandom;
  /** An exception that would have ended a real process. */
  crashed: (error: unknown) => void;
}

interface Held {
  phase: Phase;
  run: () => void;
}

export class SimProcess {
  readonly name: string;
  readonly random: SeededRandom;
  readonly clock: Clock;
  readonly loop: SimLoop;
  readonly #deps: ProcessDeps;
  readonly #held: Held[] = [];
  readonly #whenKilled: (() => void)[] = [];
  #state: 'running' | 'frozen' | 'dead' = 'running';
  #isPowerless = false;
  #freezes = 0;
  /** The error of its wall clock. */
  wallOffsetMs = 0;

  constructor(deps: ProcessDeps) {
    this.name = deps.name;
    this.random = deps.random;
    this.#deps = deps;
    this.loop = new SimLoop(deps.time);
    this.clock = new ProcessClock(this, deps.time);
  }

  /** Whether the process ended without notice to anybody. */
  get isPowerless(): boolean {
    return this.#isPowerless;
  }

  get isDead(): boolean {
    return this.#state === 'dead';
  }

  get isFrozen(): boolean {
    return this.#state === 'frozen';
  }

  get isRunning(): boolean {
    return this.#state === 'running';
  }

  /**
   * Calls `run` in this process after `delayMs` if it is alive then, and later if it is stopped.
   */
  enter(delayMs: number, phase: Phase, run: () => void): Timer {
    let isCancelled = false;
    const guarded = () => {
      if (!isCancelled) this.#run(run);
    };
    const timer = this.#deps.time.schedule(delayMs, phase, () => {
      if (this.#state === 'frozen') this.#held.push({ phase, run: guarded });
      else if (this.loop.isBusy) this.loop.add({ phase, run: guarded });
      else guarded();
    });
    return {
      cancel: () => {
        isCancelled = true;
        timer.cancel();
      },
    };
  }

  /** Input from outside the process: the network, the database, the bus. */
  receive(delayMs: number, run: () => void): Timer {
    return this.enter(delayMs, PHASE.input, run);
  }

  onKill(listener: () => void): void {
    this.#whenKilled.push(listener);
  }

  freeze(): void {
    this.#freezes += 1;
    if (this.#state === 'running') this.#state = 'frozen';
  }

  /** Ends one freeze. The process continues when the last freeze has ended. */
  thaw(): void {
    this.#freezes -= 1;
    if (this.#state !== 'frozen' || this.#freezes > 0) return;
    this.#state = 'running';
    for (const { phase, run } of this.#held.splice(0)) this.#deps.time.schedule(0, phase, run);
  }

  /**
   * Connections of the process end as the machine's kernel ends them; without power they do not.
   */
  kill({ isPowerless = false } = {}): void {
    if (this.#state === 'dead') return;
    this.#state = 'dead';
    this.#isPowerless = isPowerless;
    this.#held.length = 0;
    for (const listener of this.#whenKilled.splice(0)) listener();
  }

  #run(run: () => void): void {
    if (this.#state === 'dead') return;
    try {
      run();
    } catch (error) {
      this.#deps.crashed(error);
    }
  }
}

class ProcessClock implements Clock {
  readonly #process: SimProcess;
  readonly #time: VirtualTime;
  /** Monotonic clocks of different processes have different origins. */
  readonly #startedAt: number;

  constructor(process: SimProcess, time: VirtualTime) {
    this.#process = process;
    this.#time = time;
    this.#startedAt = time.now - process.random.whole(0, 1_000_000);
  }

  now(): number {
    return this.#time.now - this.#startedAt;
  }

  wallTime(): number {
    return Math.floor(EPOCH_MS + this.#time.now + this.#process.wallOffsetMs);
  }

  after(delayMs: number, callback: () => void): Timer {
    return this.#process.enter(allowed(delayMs) + this.#jitter(), PHASE.timers, callback);
  }

  every(periodMs: number, callback: () => void): Timer {
    let isCancelled = false;
    let timer: Timer | undefined;
    const arm = () => {
      timer = this.#process.enter(allowed(periodMs) + this.#jitter(), PHASE.timers, () => {
        if (!isCancelled) arm();
        callback();
      });
    };
    arm();
    return {
      cancel: () => {
        isCancelled = true;
        timer?.cancel();
      },
    };
  }

  afterPoll(callback: () => void): void {
    this.#process.enter(0, PHASE.afterPoll, callback);
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const done = () => {
        timer.cancel();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = this.after(delayMs, done);
      signal?.addEventListener('abort', done, { once: true });
    });
  }

  #jitter(): number {
    return this.#process.random.fraction() * TIMER_JITTER_MS;
  }
}

/** Refuses delays that Node cannot wait for: its timer would fire at once, which is a defect. */
function allowed(delayMs: number): number {
  if (!(delayMs < 2 ** 31)) throw new RangeError(`no timer takes ${delayMs} ms`);
  return Math.max(1, delayMs);
}
