/**
 * Parts of the batches that failed, until each item that fails is alone. Pure. Used by
 * `batch-queue.ts`.
 *
 *     a batch, or a part of several items, failed
 *         ├─locked, refused, lacks resources──▶ its eighths, behind all other parts
 *         ├─slow──▶ its eighths, behind all other parts, each with a quarter of the batch's time
 *         └─unanswered──▶ the same again, before all other parts; `count` makes it smaller
 *     three parts of a slow batch in a row were slow──▶ eighths of all its items, with the full time
 *
 * If one item of a batch is slow, the others would wait as long as the batch took once more at each
 * division. Three divisions of 500 items, each with a quarter of that time, take less than that
 * time together. A quarter is twice what an eighth needs if the batch was merely large. An item
 * that alone needs more than a quarter is not lost: the queue tries it again with the full time.
 *
 * One slow item is in at most two parts that end in a row. If three are slow in a row, statements
 * of any size may take more than a quarter of the time, and then no division would succeed.
 */
import { chunksOf } from '../../chunks.ts';
import type { DatabaseBusyError } from '../../errors.ts';

const PARTS = 8;
const PART_OF_TIME = 1 / 4;
/** A batch that somebody cancelled may have taken no time at all. */
const MIN_TIMEOUT_MS = 250;
const MAX_SLOW_IN_A_ROW = 3;

/** Pace shared by all parts of one slow batch. */
interface PartPace {
  /** Undefined: the database's setting, because several parts were slow within a shorter time. */
  statementTimeoutMs?: number | undefined;
  slowInARow: number;
}

export interface BatchPart<Item> {
  items: Item[];
  /** Undefined unless it was split from a slow batch. */
  pace?: PartPace | undefined;
}

export interface BatchFailure {
  reason: DatabaseBusyError['condition'] | 'refused';
  tookMs: number;
}

export class BatchParts<Item> {
  #parts: BatchPart<Item>[] = [];

  items(): Item[] {
    return this.#parts.flatMap(({ items }) => items);
  }

  /** Keeps nothing of a part with one item, but counts it. */
  failed(part: BatchPart<Item>, failure: BatchFailure): void {
    const { items, pace } = part;
    if (pace !== undefined) pace.slowInARow = failure.reason === 'slow' ? pace.slowInARow + 1 : 0;
    if (items.length > 1 && failure.reason === 'unanswered') this.#parts.unshift(part);
    else if (items.length > 1) this.#parts.push(...divide({ items, pace: pace ?? paceAfter(failure) }));
    if (pace?.statementTimeoutMs !== undefined && pace.slowInARow === MAX_SLOW_IN_A_ROW) this.#giveFullTime(pace);
  }

  succeeded({ pace }: BatchPart<Item>): void {
    if (pace !== undefined) pace.slowInARow = 0;
  }

  /** The next part, or as many of its items as `count` lets pass; undefined if there is none. */
  take(count: (items: readonly Item[]) => number): BatchPart<Item> | undefined {
    const part = this.#parts.shift();
    if (part === undefined) return undefined;
    const taken = count(part.items);
    if (taken < part.items.length) this.#parts.unshift({ ...part, items: part.items.slice(taken) });
    return { ...part, items: part.items.slice(0, taken) };
  }

  clear(): void {
    this.#parts = [];
  }

  /** Divides again what is left of the batch, because the parts may have become small. */
  #giveFullTime(pace: PartPace): void {
    pace.statementTimeoutMs = undefined;
    const { left = [], others = [] } = Object.groupBy(this.#parts, (one) => (one.pace === pace ? 'left' : 'others'));
    this.#parts = [...others, ...divide({ items: left.flatMap(({ items }) => items), pace })];
  }
}

function paceAfter({ reason, tookMs }: BatchFailure): PartPace | undefined {
  if (reason !== 'slow') return undefined;
  return { statementTimeoutMs: Math.max(MIN_TIMEOUT_MS, tookMs * PART_OF_TIME), slowInARow: 0 };
}

function divide<Item>({ items, pace }: BatchPart<Item>): BatchPart<Item>[] {
  const length = Math.max(1, Math.ceil(items.length / PARTS));
  return Array.from(chunksOf(items, length), (some) => ({ items: some, pace }));
}
