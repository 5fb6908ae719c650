/**
 * Limits the rate of each source: a token bucket that fills at an even rate, and allows a burst of
 * its size. Bounded: with too many sources the least recently seen one is forgotten, and its bucket
 * starts full again. Time is passed with each call; called by `authenticator.ts`.
 */
interface BucketOptions {
  perSecond: number;
  /** How many may be taken at once. */
  burst: number;
}

interface Bucket {
  left: number;
  at: number;
}

const MAX_SOURCES = 50_000;

export class SourceBuckets {
  readonly #options: BucketOptions;
  /** The least recently seen comes first. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(options: BucketOptions) {
    this.#options = options;
  }

  /** Takes one. If none is left, returns in how many ms there will be one. */
  take(source: string, now: number): number {
    const bucket = this.#refilled(source, now);
    if (bucket.left < 1) return this.#untilOne(bucket);
    bucket.left -= 1;
    return 0;
  }

  /** Returns an unused one. */
  giveBack(source: string): void {
    const bucket = this.#buckets.get(source);
    if (bucket !== undefined) bucket.left = Math.min(this.#options.burst, bucket.left + 1);
  }

  get size(): number {
    return this.#buckets.size;
  }

  #refilled(source: string, now: number): Bucket {
    const { perSecond, burst } = this.#options;
    const bucket = this.#buckets.get(source) ?? { left: burst, at: now };
    this.#buckets.delete(source);
    this.#buckets.set(source, bucket);
    bucket.left = Math.min(burst, bucket.left + ((now - bucket.at) / 1000) * perSecond);
    bucket.at = now;
    if (this.#buckets.size > MAX_SOURCES) this.#forgetOne();
    return bucket;
  }

  #forgetOne(): void {
    const [oldest] = this.#buckets.keys();
    if (oldest !== undefined) this.#buckets.delete(oldest);
  }

  #untilOne({ left }: Bucket): number {
    return ((1 - left) / this.#options.perSecond) * 1000;
  }
}

/** Things that are held for a time, such as connections, counted by source. */
export class SourceCounts {
  readonly #counts = new Map<string, number>();

  /** Returns the source's count, this one included. */
  add(source: string): number {
    const count = this.of(source) + 1;
    this.#counts.set(source, count);
    return count;
  }

  remove(source: string): void {
    const count = this.of(source) - 1;
    if (count > 0) this.#counts.set(source, count);
    else this.#counts.delete(source);
  }

  of(source: string): number {
    return this.#counts.get(source) ?? 0;
  }
}
