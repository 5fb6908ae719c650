/**
 * Which rows stay the same for how long, as one observer sees it: counted in its own healthy ticks,
 * with no failed read in between (law 4). No clocks are compared. Pure data: `countHealthyTick`,
 * `readFailed` and `read` are the events. Finds lapsed leases and ownerless rows.
 */
interface Seen {
  version: string;
  /** Healthy milliseconds since the row was first seen like this. */
  unchangedMs: number;
}

interface Identity<Row> {
  keyOf(row: Row): string;
  /** A row is unchanged while this is equal. */
  versionOf(row: Row): string;
}

export class UnchangedRows<Row> {
  readonly #forMs: number;
  readonly #identity: Identity<Row>;
  #seen = new Map<string, Seen>();

  constructor(forMs: number, identity: Identity<Row>) {
    this.#forMs = forMs;
    this.#identity = identity;
  }

  /** Rows at the last read. */
  get size(): number {
    return this.#seen.size;
  }

  countHealthyTick(tickMs: number): void {
    for (const seen of this.#seen.values()) seen.unchangedMs += tickMs;
  }

  /** A read failed: what was seen before it proves nothing. */
  readFailed(): void {
    for (const seen of this.#seen.values()) seen.unchangedMs = 0;
  }

  /**
   * A read succeeded: these are all rows. Returns those that have been unchanged for long enough. A
   * row that was absent in between counts as new.
   */
  read(rows: readonly Row[]): Row[] {
    const before = this.#seen;
    this.#seen = new Map(rows.map((row) => [this.#identity.keyOf(row), this.#seenNow(row, before)]));
    return rows.filter((row) => (this.unchangedMs(this.#identity.keyOf(row)) ?? 0) >= this.#forMs);
  }

  /**
   * How long the row of this key has been unchanged; undefined if the last read had no such row.
   */
  unchangedMs(key: string): number | undefined {
    return this.#seen.get(key)?.unchangedMs;
  }

  #seenNow(row: Row, before: ReadonlyMap<string, Seen>): Seen {
    const version = this.#identity.versionOf(row);
    const known = before.get(this.#identity.keyOf(row));
    return known?.version === version ? known : { version, unchangedMs: 0 };
  }
}
