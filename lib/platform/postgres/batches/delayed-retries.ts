/**
 * Holds items whose statements failed, each until its pause is over. The pause of an item doubles
 * with each failure; the longest pause of a refused item is longer than that of a locked one. Pure
 * except for the clock that it is given. Used by `batch-queue.ts`.
 */
import type { Clock } from '../../time/clock.ts';

const FIRST_PAUSE_MS = 100;
export const MAX_PAUSE_MS = 1_000;
/**
 * The longest pause of a refused item. A retry rarely helps, and takes the lane from items that are
 * only locked.
 */
export const REFUSED_PAUSE_MS = 30_000;
/** Limits the share of the network and of the lane that items which never succeed use. */
const LONGEST_PAUSE_FACTOR = 4;

/** The pause after this one. */
export const nextBackoffMs = (pauseMs: number): number => Math.min(Math.max(pauseMs * 2, FIRST_PAUSE_MS), MAX_PAUSE_MS);

export interface FailedTry {
  /** Whether the item failed alone, so it is tried alone; skipped items are tried together. */
  isAlone: boolean;
  /** Time that its last statement took. */
  tookMs: number;
  /** Refused by the database, and its owner does not decide. */
  isRefused?: boolean;
}

interface Aside<Item> {
  item: Item;
  since: number;
  /** Infinite while it is in a statement. */
  dueAt: number;
  pauseMs: number;
  isAlone: boolean;
}

export class DelayedRetries<Item> {
  readonly #clock: Clock;
  readonly #asides = new Map<string, Aside<Item>>();
  /** No item is due before this. */
  #dueAt = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#asides.size;
  }

  get dueAt(): number {
    return this.#dueAt;
  }

  /** Items that wait. Those that are tried now, alone or in parts of a batch, are not included. */
  items(): Item[] {
    const waiting = [...this.#asides.values()].filter(({ dueAt }) => dueAt !== Number.POSITIVE_INFINITY);
    return waiting.map(({ item }) => item);
  }

  /** When its first failed statement began; undefined if it is not set aside. */
  since(key: string): number | undefined {
    return this.#asides.get(key)?.since;
  }

  isInStatement(key: string): boolean {
    return this.#asides.get(key)?.dueAt === Number.POSITIVE_INFINITY;
  }

  /** Returns the pause before it is tried again. */
  put(key: string, item: Item, { isAlone, tookMs, isRefused = false }: FailedTry): number {
    const now = this.#clock.now();
    const before = this.#asides.get(key);
    const longestMs = Math.max(isRefused ? REFUSED_PAUSE_MS : MAX_PAUSE_MS, LONGEST_PAUSE_FACTOR * tookMs);
    const pauseMs = Math.min(Math.max(2 * (before?.pauseMs ?? 0), FIRST_PAUSE_MS, tookMs), longestMs);
    const dueAt = now + pauseMs;
    this.#asides.set(key, { item, since: before?.since ?? now - tookMs, dueAt, pauseMs, isAlone });
    this.#dueAt = Math.min(this.#dueAt, dueAt);
    return pauseMs;
  }

  /**
   * Returns the oldest due items: one that failed alone, or up to `count` skipped ones. They stay
   * until they are deleted or put again.
   */
  takeDue(count: (items: readonly Item[]) => number): Item[] {
    const now = this.#clock.now();
    if (this.#dueAt > now) return [];
    const due = [...this.#asides.values()].filter(({ dueAt }) => dueAt <= now).sort((a, b) => a.dueAt - b.dueAt);
    const tried = due[0]?.isAlone ? due.slice(0, 1) : due.filter(({ isAlone }) => !isAlone);
    tried.length = count(tried.map(({ item }) => item));
    for (const aside of tried) aside.dueAt = Number.POSITIVE_INFINITY;
    this.#dueAt = Number.POSITIVE_INFINITY;
    for (const { dueAt } of this.#asides.values()) this.#dueAt = Math.min(this.#dueAt, dueAt);
    return tried.map(({ item }) => item);
  }

  delete(key: string): void {
    this.#asides.delete(key);
  }

  clear(): void {
    this.#asides.clear();
  }
}
