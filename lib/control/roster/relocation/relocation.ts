/**
 * Asks agents to move to other instances: a few at a time, each again only after a pause, and only
 * agents that have given their inventory. An agent whose greeting is not finished would lose the
 * session it comes from. Drain, evacuation, balance and the comparison after a promotion each have
 * one of these. They decide how many agents move, and where.
 */
import type { Clock } from '../../../platform/time/clock.ts';
import type { InstanceAddress } from '../../../protocol/link/frames.ts';
import type { Session } from '../sessions/session.ts';

interface RelocationRequest {
  among: Iterable<Session>;
  atMost: number;
  reason: string;
  /** Where they may go. */
  addresses: readonly InstanceAddress[];
  /** Absent: the agents may stay. */
  withinMs?: number;
}

export class Relocation {
  readonly #clock: Clock;
  readonly #pauseMs: (asked: number) => number;
  readonly #asked = new WeakMap<Session, { times: number; dueAt: number }>();

  /** `pauseMs`: the pause before an agent that was asked this many times is asked again. */
  constructor({ clock, pauseMs }: { clock: Clock; pauseMs: (asked: number) => number }) {
    this.#clock = clock;
    this.#pauseMs = pauseMs;
  }

  /** How many times the agent of this session was asked. */
  timesAsked(session: Session): number {
    return this.#asked.get(session)?.times ?? 0;
  }

  /** Returns the sessions whose agents were asked now. */
  ask({ among, atMost, reason, addresses, withinMs }: RelocationRequest): Session[] {
    const now = this.#clock.now();
    const asked: Session[] = [];
    for (const session of among) {
      if (asked.length >= atMost) break;
      if (!session.isInventoried || session.isEnded || now < (this.#asked.get(session)?.dueAt ?? now)) continue;
      const times = this.timesAsked(session) + 1;
      this.#asked.set(session, { times, dueAt: now + this.#pauseMs(times) });
      session.socket.askToLeave(reason, [...addresses], withinMs);
      asked.push(session);
    }
    return asked;
  }
}

/** A pause that doubles, from `firstMs` up to `mostMs`. */
export function doublingPause(firstMs: number, mostMs: number): (asked: number) => number {
  return (asked) => Math.min(mostMs, firstMs * 2 ** Math.min(asked - 1, 20));
}
