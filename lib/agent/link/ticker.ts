/**
 * The one timer of all links of a process. It ticks each member every `periodMs`, after the poll
 * phase, so bytes that had arrived are read before silence is counted. A late tick (a stall, a
 * freeze) counts as zero healthy milliseconds. With `slots`, members are spread over the period,
 * so ten thousand of them do not all send at the same time.
 */
import type { Clock, Timer } from '../../platform/time/clock.ts';

export interface TickerMember {
  /** `healthyMs` is the part of the time since the last tick in which this process ran. */
  tick(now: number, healthyMs: number): void;
}

/** A slot is overdue when its last turn was more than this many periods ago. */
const OVERDUE = 1.5;

export class Ticker {
  readonly #clock: Clock;
  readonly #periodMs: number;
  readonly #slots: { members: Set<TickerMember>; tickedAt: number }[];
  #timer: Timer | undefined;
  #turn = 0;

  constructor(deps: { clock: Clock; periodMs?: number; slots?: number }) {
    this.#clock = deps.clock;
    this.#periodMs = deps.periodMs ?? 250;
    this.#slots = Array.from({ length: deps.slots ?? 1 }, () => ({ members: new Set(), tickedAt: 0 }));
  }

  /** The timer runs while there are members. */
  add(member: TickerMember): void {
    const slot = this.#slots.reduce((least, one) => (one.members.size < least.members.size ? one : least));
    slot.members.add(member);
    this.#timer ??= this.#clock.every(this.#periodMs / this.#slots.length, () => this.#onTimer());
  }

  remove(member: TickerMember): void {
    for (const slot of this.#slots) slot.members.delete(member);
    if (this.#slots.some((slot) => slot.members.size > 0)) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /**
   * If a late timer made several slots overdue, they all get their turn now: an agent whose
   * process stalled sends immediately.
   */
  #onTimer(): void {
    const now = this.#clock.now();
    this.#takeTurn(now);
    for (let more = this.#slots.length - 1; more > 0 && this.#isOverdue(now); more--) this.#takeTurn(now);
  }

  #isOverdue(now: number): boolean {
    const next = this.#slots[(this.#turn + 1) % this.#slots.length];
    return next !== undefined && now - next.tickedAt > OVERDUE * this.#periodMs;
  }

  #takeTurn(now: number): void {
    this.#turn = (this.#turn + 1) % this.#slots.length;
    const slot = this.#slots[this.#turn];
    if (!slot) return;
    const late = now - slot.tickedAt > 2 * this.#periodMs;
    slot.tickedAt = now;
    this.#clock.afterPoll(() => {
      for (const member of slot.members) member.tick(now, late ? 0 : this.#periodMs);
    });
  }
}
