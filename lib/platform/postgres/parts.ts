/**
 * Parts of the batches that failed, until each item that fails is alone. Pure. Used by
 * `batch-queue.ts`.
 *
 *     a batch, or a part of several items, failed
 *         ├─locked, refused, lacks resources──▶ its eighths, behind all other parts
 *         ├─slow──▶ its eighths, behind all other parts, each with a quarter of the batch's time
 *         └─unanswered──▶ the same again, before all other parts; `count` makes it smaller
 *
 * If one item of a batch is slow, the others would wait as long as the batch took once more at each
 * division. Three divisions of 500 items, each with a quarter of that time, take less than that
 * time together. A quarter is twice what an eighth needs if the batch was merely large. An item
 * that alone needs more than a quarter is not lost: the queue tries it again with the full time.
 */
import type { DatabaseBusyError } from '../errors.ts';

const PARTS = 8;
const PART_OF_TIME = 1 / 4;
/** A batch that somebody cancelled may have taken no time at all. */
const MIN_TIMEOUT_MS = 250;

export interface Part<Item> {
  items: Item[];
  /** Default: the database's setting. */
  statementTimeoutMs?: number | undefined;
}

export interface Failure {
  why: DatabaseBusyError['condition'] | 'refused';
  tookMs: number;
}

export class Parts<Item> {
  #parts: Part<Item>[] = [];

  items(): Item[] {
    return this.#parts.flatMap(({ items }) => items);
  }

  /** `part` has two items or more. */
  put(part: Part<Item>, failure: Failure): void {
    if (failure.why === 'unanswered') this.#parts.unshift(part);
    else this.#parts.push(...divide(part, failure));
  }

  /** The next part, or as many of its items as `count` lets pass; undefined if there is none. */
  take(count: (items: readonly Item[]) => number): Part<Item> | undefined {
    const part = this.#parts.shift();
    if (part === undefined) return undefined;
    const taken = count(part.items);
    if (taken < part.items.length) this.#parts.unshift({ ...part, items: part.items.slice(taken) });
    return { ...part, items: part.items.slice(0, taken) };
  }

  clear(): void {
    this.#parts = [];
  }
}

function divide<Item>({ items, statementTimeoutMs }: Part<Item>, { why, tookMs }: Failure): Part<Item>[] {
  const slowMs = why === 'slow' ? Math.max(MIN_TIMEOUT_MS, tookMs * PART_OF_TIME) : undefined;
  const timeout = { statementTimeoutMs: statementTimeoutMs ?? slowMs };
  const length = Math.ceil(items.length / PARTS);
  const starts = Array.from({ length: Math.ceil(items.length / length) }, (_, part) => part * length);
  return starts.map((start) => ({ ...timeout, items: items.slice(start, start + length) }));
}
