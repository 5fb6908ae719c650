/**
 * The event loop of a simulated process whose work takes time. A turn handles what has arrived so
 * far: timers first, then input, then the poll phase, each after the one before. Input that arrives
 * meanwhile waits for the next turn.
 */
import { PHASE, type Phase, type VirtualTime } from './virtual-time.ts';

interface Job {
  phase: Phase;
  run: () => void;
}

export class SimLoop {
  readonly #time: VirtualTime;
  #turn: Job[] = [];
  #waiting: Job[] = [];
  #busyUntil = 0;
  #workedMs = 0;
  #isScheduled = false;

  constructor(time: VirtualTime) {
    this.#time = time;
  }

  /** Whether input that arrives now waits. */
  get isBusy(): boolean {
    return this.#isScheduled;
  }

  add(job: Job): void {
    this.#waiting.push(job);
  }

  /** The current work takes that much longer. */
  work(ms: number): void {
    if (ms <= 0) return;
    this.#busyUntil = Math.max(this.#busyUntil, this.#time.now) + ms;
    this.#workedMs += ms;
    this.#goOn();
  }

  /** The share of time in which it worked since the previous call of the result. */
  busyShare(): () => number {
    let [at, before] = [this.#time.now, this.#workedMs];
    return () => {
      const { now } = this.#time;
      const done = this.#workedMs - Math.max(0, this.#busyUntil - now);
      const share = now > at ? Math.min(1, Math.max(0, done - before) / (now - at)) : 0;
      [at, before] = [now, done];
      return share;
    };
  }

  #goOn(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#time.schedule(this.#busyUntil - this.#time.now, PHASE.timers, () => {
      this.#isScheduled = false;
      if (this.#busyUntil > this.#time.now) return this.#goOn();
      this.#next();
    });
  }

  #next(): void {
    if (this.#turn.length === 0) this.#turn = this.#waiting.splice(0).sort((one, other) => one.phase - other.phase);
    const job = this.#turn.shift();
    if (job === undefined) return;
    job.run();
    this.#goOn();
  }
}
