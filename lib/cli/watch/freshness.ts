/**
 * Says whether what `cnapi watch` shows may no longer be true: its last question failed, or has
 * waited too long for an answer.
 *
 *     fresh ──asked──▶ waiting ──OVERDUE_MS or failed──▶ silent
 *       ▲                 │  ◀────── a part came ──────────┤
 *       └────answered─────┴────────────answered────────────┘
 *
 * An answer has parts, such as the pages of a list. A large fleet is not silent while they come.
 * Pure.
 */

/** How long there has been no answer, and when the last one arrived (wall-clock time). */
export interface Silence {
  forMs: number;
  /** Undefined: there has been no answer at all. */
  answeredAt: string | undefined;
}

/** Longer than an answer takes, and short enough that nobody acts on what is past. */
const OVERDUE_MS = 2_000;

export class Freshness {
  #answeredAt: string | undefined;
  /** Time of the first request since the last answer. */
  #askedAt: number | undefined;
  /** When the last part of an answer came. */
  #heardAt = 0;
  #hasFailed = false;

  asked(now: number): void {
    this.#askedAt ??= now;
  }

  heardPart(now: number): void {
    this.#heardAt = now;
  }

  answered(time: string): void {
    this.#answeredAt = time;
    this.#askedAt = undefined;
    this.#hasFailed = false;
  }

  failed(): void {
    this.#hasFailed = true;
  }

  /** Undefined while what is shown is as new as it can be. */
  silence(now: number): Silence | undefined {
    if (this.#askedAt === undefined) return undefined;
    // After a failure there is no update, whatever parts come.
    const forMs = now - (this.#hasFailed ? this.#askedAt : Math.max(this.#askedAt, this.#heardAt));
    return this.#hasFailed || forMs >= OVERDUE_MS ? { forMs, answeredAt: this.#answeredAt } : undefined;
  }
}
