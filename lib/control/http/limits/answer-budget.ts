/**
 * Memory for answers. Every answer counts its bytes here while this instance holds them: read,
 * serialized, not yet taken by the network. The instance has one budget, and each caller a share of
 * it. Beyond either, a request is refused with a Retry-After. So neither many callers nor a
 * slow one can exhaust the heap. Owned by the listener.
 */
import { CnapiError } from '../../../platform/errors.ts';

interface AnswerBudgetOptions {
  maxBytes: number;
  /** 0: no limit. */
  maxBytesPerCaller: number;
}

/** 503: this instance has reached its limit for all answers. */
export class AnswerMemoryFullError extends CnapiError {
  constructor(maxBytes: number) {
    const message = `This instance already holds ${mebibytes(maxBytes)} MiB of answers (answerMemoryMiB); ask again shortly, or another instance`;
    super('AnswerMemoryFull', 503, message, { retryAfterSeconds: 1 });
  }
}

/** 429: one caller's answers have reached its share. */
export class AnswerShareFullError extends CnapiError {
  constructor(maxBytes: number) {
    const message = `This instance already holds ${mebibytes(maxBytes)} MiB of answers for this caller (answerMemoryPerCallerMiB); read them, and ask again`;
    super('AnswerShareFull', 429, message, { retryAfterSeconds: 1 });
  }
}

const mebibytes = (bytes: number): number => Math.round(bytes / 1024 / 1024);

export class AnswerBudget {
  readonly #options: AnswerBudgetOptions;
  readonly #byCaller = new Map<string, number>();
  #held = 0;
  #refused = 0;

  constructor(options: AnswerBudgetOptions) {
    this.#options = options;
  }

  /** Bytes of answers that this instance holds now. */
  get held(): number {
    return this.#held;
  }

  /** Requests refused because of missing memory, so far. */
  get refused(): number {
    return this.#refused;
  }

  /** The byte count of one answer; starts at 0. Undefined: a caller without a share of its own. */
  open(caller: string | undefined): AnswerShare {
    return new AnswerShare(this, caller);
  }

  /** For AnswerShare. @throws AnswerMemoryFullError, AnswerShareFullError */
  check(caller: string | undefined, more: number): void {
    const { maxBytes, maxBytesPerCaller } = this.#options;
    const held = caller === undefined ? 0 : (this.#byCaller.get(caller) ?? 0);
    // A single answer is never refused, however large: it would be refused for ever.
    const isShareFull = maxBytesPerCaller > 0 && held > 0 && held + more > maxBytesPerCaller;
    const isFull = this.#held > 0 && this.#held + more > maxBytes;
    if (!isShareFull && !isFull) return;
    this.#refused += 1;
    throw isShareFull ? new AnswerShareFullError(maxBytesPerCaller) : new AnswerMemoryFullError(maxBytes);
  }

  /** For AnswerShare. */
  add(caller: string | undefined, bytes: number): void {
    this.#held += bytes;
    if (caller === undefined) return;
    const held = (this.#byCaller.get(caller) ?? 0) + bytes;
    if (held > 0) this.#byCaller.set(caller, held);
    else this.#byCaller.delete(caller);
  }
}

/**
 * The bytes of the budget that one answer holds. Release it when the answer is sent or abandoned.
 */
export class AnswerShare {
  readonly #budget: AnswerBudget;
  readonly #caller: string | undefined;
  #held = 0;
  #isReleased = false;

  constructor(budget: AnswerBudget, caller: string | undefined) {
    this.#budget = budget;
    this.#caller = caller;
  }

  /**
   * Holds at least this many bytes from now on. @throws AnswerMemoryFullError, AnswerShareFullError
   */
  hold(bytes: number): void {
    if (bytes > this.#held) this.#budget.check(this.#caller, bytes - this.#held);
    this.holdAnyway(bytes);
  }

  /**
   * Like `hold`, for replies that must be sent: a result that cannot be produced twice, an error, a
   * health check.
   */
  holdAnyway(bytes: number): void {
    if (this.#isReleased || bytes <= this.#held) return;
    this.#budget.add(this.#caller, bytes - this.#held);
    this.#held = bytes;
  }

  /**
   * Holds this many bytes from now on, more or fewer than before. @throws AnswerMemoryFullError,
   * AnswerShareFullError
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
