/**
 * Time as a parameter. All code outside this folder takes a Clock, so that the real drivers can run
 * on a virtual clock. `now()` is monotonic and only valid for differences within this process;
 * `wallTime()` is for people and for the wire.
 */

export interface Timer {
  /** Stops the timer. Does nothing when it has already fired. */
  cancel(): void;
}

export interface Clock {
  /** Monotonic milliseconds. Never jumps; never compared with another process's value. */
  now(): number;
  /**
   * Milliseconds since the epoch on this machine's wall clock. For display and the wire, never for
   * a decision (exceptions: elapsed-time.ts of lib/cli, the times of schedules, which must also
   * have passed by the database's clock, and the time limit of a task that a later process of the
   * agent continues).
   */
  wallTime(): number;
  /** Calls `callback` once after `delayMs`. */
  after(delayMs: number, callback: () => void): Timer;
  /** Calls `callback` each `periodMs`. Missed ticks are not repeated. */
  every(periodMs: number, callback: () => void): Timer;
  /**
   * Calls `callback` after the event loop's poll phase, when bytes that had already arrived have
   * been read.
   */
  afterPoll(callback: () => void): void;
  /** Resolves after `delayMs`, or as soon as `signal` aborts (it never rejects). */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
}

/**
 * The real clock. Its timers keep the process alive; the code that starts one cancels it in
 * `stop()`.
 */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallTime: () => Date.now(),
  after: timerAfter,
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
        timer.cancel();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = timerAfter(delayMs, done);
      signal?.addEventListener('abort', done, { once: true });
    });
  },
};

/** Node fires a longer timer immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

function timerAfter(delayMs: number, callback: () => void): Timer {
  let handle: NodeJS.Timeout;
  const wait = (leftMs: number) => {
    if (leftMs > MAX_TIMER_MS) handle = setTimeout(() => wait(leftMs - MAX_TIMER_MS), MAX_TIMER_MS);
    else handle = setTimeout(callback, leftMs);
  };
  wait(delayMs);
  return { cancel: () => clearTimeout(handle) };
}

/**
 * Returns whether `work` finished in time; rejects if `work` rejects in time. Late work continues
 * and its result is ignored.
 */
export async function settlesWithin(clock: Clock, withinMs: number, work: Promise<unknown>): Promise<boolean> {
  const isOver = new AbortController();
  const inTime = work.then(() => true);
  try {
    return await Promise.race([inTime, clock.sleep(withinMs, isOver.signal).then(() => false)]);
  } finally {
    isOver.abort();
  }
}

/** The current wall-clock time in ISO 8601, the format that RFD 61's peers use. */
export function isoNow(clock: Clock): string {
  return new Date(clock.wallTime()).toISOString();
}
