/**
 * The event loop of a simulated process whose work takes time. A turn takes what has come in so far: timers first, then input,
 * then what waits for the poll phase, each when the one before is done. What comes in meanwhile waits for the next turn.
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

  /** Whether what comes in now waits. */
  get isBusy(): boolean {
    return this.#isScheduled;
  }

  add(job: Job): void {
    this.#waiting.push(job);
  }

  /** What runs now takes that much longer. */
  work(ms: number): void {
    if (ms <= 0) return;
    this.#busyUntil = Math.max(this.#busyUntil, this.#time.now) + ms;
    this.#workedMs += ms;
    this.#goOn();
  }

  /** The share of the time in which it worked; each call of the result tells it since the call before. */
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
