/**
 * A clock that the test advances. Timers fire in order of time; what they start settles before the
 * next one fires.
 */
import type { Clock, Timer } from '../../lib/platform/time/clock.ts';

interface Alarm {
  at: number;
  everyMs: number | undefined;
  callback: () => void;
}

export class ManualClock implements Clock {
  readonly #alarms = new Set<Alarm>();
  #now = 1_000;

  now(): number {
    return this.#now;
  }

  wallTime(): number {
    return 1_700_000_000_000 + this.#now;
  }

  after(delayMs: number, callback: () => void): Timer {
    return this.#arm({ at: this.#now + delayMs, everyMs: undefined, callback });
  }

  every(periodMs: number, callback: () => void): Timer {
    return this.#arm({ at: this.#now + periodMs, everyMs: periodMs, callback });
  }

  afterPoll(callback: () => void): void {
    callback();
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const timer = this.after(delayMs, resolve);
      const wake = () => {
        timer.cancel();
        resolve();
      };
      signal?.addEventListener('abort', wake, { once: true });
    });
  }

  /** Timers that have not fired. */
  get timers(): number {
    return this.#alarms.size;
  }

  /** Time passes normally: each timer fires at its time. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (let next = this.#next(end); next !== undefined; next = this.#next(end)) {
      this.#now = Math.max(this.#now, next.at);
      this.#fire(next);
      await settle();
    }
    this.#now = end;
    await settle();
  }

  /** The process is suspended: the time is lost, and each timer that was due fires once, late. */
  async stall(ms: number): Promise<void> {
    this.#now += ms;
    for (const alarm of [...this.#alarms].filter(({ at }) => at <= this.#now)) {
      alarm.at = this.#now;
      this.#fire(alarm);
    }
    await settle();
  }

  #arm(alarm: Alarm): Timer {
    this.#alarms.add(alarm);
    return { cancel: () => this.#alarms.delete(alarm) };
  }

  #next(end: number): Alarm | undefined {
    return [...this.#alarms].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
  }

  #fire(alarm: Alarm): void {
    if (alarm.everyMs === undefined) this.#alarms.delete(alarm);
    else alarm.at = this.#now + alarm.everyMs;
    alarm.callback();
  }
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
