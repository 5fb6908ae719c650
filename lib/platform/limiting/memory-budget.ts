/**
 * Counts memory that is in use, in all and for each caller, and refuses more beyond a limit. Used
 * for answers and for request bodies, by an instance and by an agent's HTTP port. Owned by the user
 * of the memory.
 */
import { KeyedCounts } from './keyed-counts.ts';

export interface MemoryLimits {
  maxBytes: number;
  /** 0: no limit. */
  maxBytesPerCaller: number;
}

interface MemoryBudgetOptions extends MemoryLimits {
  /** The error beyond either limit. */
  full(maxBytes: number): Error;
  shareFull(maxBytesPerCaller: number): Error;
}

export class MemoryBudget {
  readonly #options: MemoryBudgetOptions;
  readonly #byCaller = new KeyedCounts();
  #held = 0;
  #refused = 0;

  constructor(options: MemoryBudgetOptions) {
    this.#options = options;
  }

  /** Bytes in use now. */
  get held(): number {
    return this.#held;
  }

  /** Requests refused because of missing memory, so far. */
  get refused(): number {
    return this.#refused;
  }

  /**
   * The byte count of one user of memory; starts at 0. Undefined: a caller without a limit of its
   * own.
   */
  open(caller: string | undefined): MemoryShare {
    return new MemoryShare(this, caller);
  }

  /**
   * Called by MemoryShare, which holds `own` bytes and wants `more`. @throws the errors of the
   * options
   */
  check(caller: string | undefined, own: number, more: number): void {
    const { maxBytes, maxBytesPerCaller, full, shareFull } = this.#options;
    const held = caller === undefined ? 0 : this.#byCaller.of(caller);
    // A single user is never refused, however large: it would be refused for ever.
    const isShareFull = maxBytesPerCaller > 0 && held > own && held + more > maxBytesPerCaller;
    const isFull = this.#held > own && this.#held + more > maxBytes;
    if (!isShareFull && !isFull) return;
    this.#refused += 1;
    throw isShareFull ? shareFull(maxBytesPerCaller) : full(maxBytes);
  }

  /** Called by MemoryShare. */
  add(caller: string | undefined, bytes: number): void {
    this.#held += bytes;
    if (caller !== undefined) this.#byCaller.add(caller, bytes);
  }
}

/**
 * The bytes of the budget that one user holds, such as an answer. Release it at the end of the use.
 */
export class MemoryShare {
  readonly #budget: MemoryBudget;
  readonly #caller: string | undefined;
  #held = 0;
  #isReleased = false;

  constructor(budget: MemoryBudget, caller: string | undefined) {
    this.#budget = budget;
    this.#caller = caller;
  }

  /**
   * Holds at least this many bytes from now on. @throws the errors of the budget's options
   */
  hold(bytes: number): void {
    if (bytes > this.#held) this.#budget.check(this.#caller, this.#held, bytes - this.#held);
    this.holdAnyway(bytes);
  }

  /**
   * Like `hold`, for answers that must be sent: a result that cannot be produced twice, an error, a
   * health check.
   */
  holdAnyway(bytes: number): void {
    if (this.#isReleased || bytes <= this.#held) return;
    this.#budget.add(this.#caller, bytes - this.#held);
    this.#held = bytes;
  }

  /**
   * Holds this many bytes from now on, more or fewer than before. @throws the errors of the
   * budget's options
   */
  resize(bytes: number): void {
    this.hold(bytes);
    if (this.#isReleased || bytes >= this.#held) return;
    this.#budget.add(this.#caller, bytes - this.#held);
    this.#held = bytes;
  }

  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#budget.add(this.#caller, -this.#held);
  }
}
