/**
 * The one timer of all links of a process. It ticks each member every `periodMs`, after the poll
 * phase, so bytes that had arrived are read before silence is counted. A late tick (a stall, a
 * freeze) counts as zero healthy milliseconds. With `spokes`, members are spread over the period,
 * so ten thousand of them do not send at once.
 */
import type { Clock, Timer } from '../../platform/clock.ts';

export interface Pulsed {
  /** `healthyMs` is the part of the time since the last tick in which this process ran. */
  tick(now: number, healthyMs: number): void;
}

/** A spoke is overdue when its last turn was more than this many periods ago. */
const OVERDUE = 1.5;

export class Pulse {
  readonly #clock: Clock;
  readonly #periodMs: number;
  readonly #spokes: { members: Set<Pulsed>; tickedAt: number }[];
  #timer: Timer | undefined;
  #turn = 0;

  constructor(deps: { clock: Clock; periodMs?: number; spokes?: number }) {
    this.#clock = deps.clock;
    this.#periodMs = deps.periodMs ?? 250;
    this.#spokes = Array.from({ length: deps.spokes ?? 1 }, () => ({ members: new Set(), tickedAt: 0 }));
  }

  /** The timer runs while there are members. */
  add(member: Pulsed): void {
    const spoke = this.#spokes.reduce((least, one) => (one.members.size < least.members.size ? one : least));
    spoke.members.add(member);
    this.#timer ??= this.#clock.every(this.#periodMs / this.#spokes.length, () => this.#onTimer());
  }

  remove(member: Pulsed): void {
    for (const spoke of this.#spokes) spoke.members.delete(member);
    if (this.#spokes.some((spoke) => spoke.members.size > 0)) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /**
   * If a late timer made several spokes overdue, they all get their turn now: an agent whose
   * process stalled sends at once.
   */
  #onTimer(): void {
    const now = this.#clock.now();
    this.#takeTurn(now);
    for (let more = this.#spokes.length - 1; more > 0 && this.#isOverdue(now); more--) this.#takeTurn(now);
  }

  #isOverdue(now: number): boolean {
    const next = this.#spokes[(this.#turn + 1) % this.#spokes.length];
    return next !== undefined && now - next.tickedAt > OVERDUE * this.#periodMs;
  }

  #takeTurn(now: number): void {
    this.#turn = (this.#turn + 1) % this.#spokes.length;
    const spoke = this.#spokes[this.#turn];
    if (!spoke) return;
    const late = now - spoke.tickedAt > 2 * this.#periodMs;
    spoke.tickedAt = now;
    this.#clock.afterPoll(() => {
      for (const member of spoke.members) member.tick(now, late ? 0 : this.#periodMs);
    });
  }
}
