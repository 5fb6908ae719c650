/**
 * Virtual time: a queue of events, run one after the other. After each event its effects in this
 * process (promises, the in-process database) complete, and only then does time move to the next.
 * So a run depends on nothing but its seed.
 */
import type { Timer } from '../../lib/platform/time/clock.ts';

/**
 * The order of events at one moment, as in Node's event loop (timers, then arrived input, then
 * `setImmediate`).
 */
export const PHASE = { timers: 0, input: 1, afterPoll: 2 } as const;
export type Phase = (typeof PHASE)[keyof typeof PHASE];

interface Event {
  at: number;
  phase: Phase;
  number: number;
  run: () => void;
  isCancelled: boolean;
}

export class VirtualTime {
  readonly #heap: Event[] = [];
  #now = 0;
  #scheduled = 0;
  #inFlight = 0;
  #done = 0;

  /** Milliseconds since the run began. */
  get now(): number {
    return this.#now;
  }

  /** Events so far. */
  get events(): number {
    return this.#done;
  }

  schedule(delayMs: number, phase: Phase, run: () => void): Timer {
    this.#scheduled += 1;
    const event = { at: this.#now + Math.max(0, delayMs), phase, number: this.#scheduled, run, isCancelled: false };
    this.#push(event);
    return {
      cancel: () => {
        event.isCancelled = true;
      },
    };
  }

  /** Work outside the microtask queue (the database): time waits for it. */
  async during<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#inFlight += 1;
    try {
      return await work();
    } finally {
      this.#inFlight -= 1;
    }
  }

  /** Runs events until `until`, or until `isOver` returns true after one. */
  async runUntil(until: number, isOver: () => boolean): Promise<void> {
    for (let next = this.#heap[0]; next !== undefined && next.at <= until; next = this.#heap[0]) {
      this.#pop();
      if (next.isCancelled) continue;
      this.#now = next.at;
      this.#done += 1;
      next.run();
      await this.#settle();
      if (isOver()) return;
    }
    this.#now = until;
  }

  async #settle(): Promise<void> {
    do await new Promise((resolve) => setImmediate(resolve));
    while (this.#inFlight > 0);
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let place = heap.push(event) - 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !isBefore(event, above)) break;
      heap[place] = above;
      place = parent;
    }
    heap[place] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let place = 0;
    for (;;) {
      let child = place * 2 + 1;
      const right = heap[child + 1];
      let least = heap[child];
      if (least === undefined) break;
      if (right !== undefined && isBefore(right, least)) {
        least = right;
        child += 1;
      }
      if (!isBefore(least, last)) break;
      heap[place] = least;
      place = child;
    }
    heap[place] = last;
  }
}

function isBefore(one: Event, other: Event): boolean {
  if (one.at !== other.at) return one.at < other.at;
  if (one.phase !== other.phase) return one.phase < other.phase;
  return one.number < other.number;
}
