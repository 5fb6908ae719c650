/**
 * How large a batch may be: a part of its maximum, which adapts to what the network to the database
 * moves in a statement's time. Pure. Used by `batch-queue.ts`.
 *
 *     a batch is unanswered ──▶ half of that batch
 *     a batch is answered ──▶ up to twice as large, if at its speed that takes well below that time
 *
 * So it settles, without further failures, where a batch takes most of the time.
 */
interface Maximum<Item> {
  maxBatch: number;
  /** Default: any size. */
  maxBatchSize?: number | undefined;
  sizeOf?: ((item: Item) => number) | undefined;
}

const GROWTH = 2;
/** A batch may take this part of the time after which a statement counts as unanswered. */
const USABLE = 0.75;

export class BatchLimit<Item> {
  readonly #maximum: Required<{ [Key in keyof Maximum<Item>]: NonNullable<Maximum<Item>[Key]> }>;
  /** The part of the maximum that is in use: above 0, at most 1. */
  #part = 1;
  /** The time after which the last unanswered statement was given up. */
  #deadlineMs = Number.POSITIVE_INFINITY;

  constructor({ maxBatch, maxBatchSize = Number.POSITIVE_INFINITY, sizeOf = () => 0 }: Maximum<Item>) {
    this.#maximum = { maxBatch, maxBatchSize, sizeOf };
  }

  /** How many of these items, from the first one, go into the next batch; one always fits. */
  count(items: Iterable<Item>): number {
    const { maxBatch, maxBatchSize, sizeOf } = this.#maximum;
    const maxItems = Math.max(1, Math.floor(maxBatch * this.#part));
    let count = 0;
    let size = 0;
    for (const item of items) {
      size += sizeOf(item);
      if (count === maxItems || (count > 0 && size > maxBatchSize * this.#part)) break;
      count += 1;
    }
    return count;
  }

  answered(batch: readonly Item[], tookMs: number): void {
    if (this.#part === 1) return;
    const possible = this.#partOf(batch) * ((USABLE * this.#deadlineMs) / Math.max(1, tookMs));
    this.#part = Math.min(1, Math.max(this.#part, Math.min(possible, this.#part * GROWTH)));
  }

  unanswered(batch: readonly Item[], tookMs: number): void {
    this.#part = Math.min(this.#part, this.#partOf(batch) / 2);
    this.#deadlineMs = tookMs;
  }

  #partOf(batch: readonly Item[]): number {
    const { maxBatch, maxBatchSize, sizeOf } = this.#maximum;
    const size = batch.reduce((sum, item) => sum + sizeOf(item), 0);
    return Math.max(batch.length / maxBatch, size / maxBatchSize);
  }
}
