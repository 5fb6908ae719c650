/**
 * Time as a parameter. Everything outside lib/ports takes a Clock, so that the real drivers can run on a virtual one.
 * `now()` is monotonic and only good for differences inside this process; `wallTime()` is for people and for the wire.
 */
export interface Timer {
  /** Stops the timer; harmless when it already fired. */
  cancel(): void;
}

export interface Clock {
  /** Monotonic milliseconds; never jumps, never compared with another process's. */
  now(): number;
  /** Milliseconds since the epoch by this machine's wall clock; for display and the wire, never for a decision (but for passed-time.ts of lib/cli). */
  wallTime(): number;
  /** Calls `callback` once after `delayMs`. */
  after(delayMs: number, callback: () => void): Timer;
  /** Calls `callback` each `periodMs`; a late tick is not made up for. */
  every(periodMs: number, callback: () => void): Timer;
  /** Calls `callback` after the event loop's poll phase, when bytes that had already arrived have been read. */
  afterPoll(callback: () => void): void;
  /** Resolves after `delayMs`, or as soon as `signal` aborts (it never rejects). */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
}

/** The real clock. Its timers hold the process open: whoever arms one cancels it in `stop()`. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallTime: () => Date.now(),
  after(delayMs, callback) {
    const handle = setTimeout(callback, delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
  every(periodMs, callback) {
    const handle = setInterval(callback, periodMs);
    return { cancel: () => clearInterval(handle) };
  },
  afterPoll(callback) {
    setImmediate(callback);
  },
  sleep(delayMs, signal) {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const done = () => {
        clearTimeout(handle);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const handle = setTimeout(done, delayMs);
      signal?.addEventListener('abort', done, { once: true });
    });
  },
};

/** Whether `work` was done in time; rejects as it does. One that is late goes on, and nobody hears how it ends. */
export async function settlesWithin(clock: Clock, withinMs: number, work: Promise<unknown>): Promise<boolean> {
  const isOver = new AbortController();
  const inTime = work.then(() => true);
  try {
    return await Promise.race([inTime, clock.sleep(withinMs, isOver.signal).then(() => false)]);
  } finally {
    isOver.abort();
  }
}

/** ISO 8601 text of the wall clock now, as RFD 61's peers write their timestamps. */
export function isoNow(clock: Clock): string {
  return new Date(clock.wallTime()).toISOString();
}
