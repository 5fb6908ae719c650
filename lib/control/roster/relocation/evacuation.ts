/**
 * Asks agents to move to other instances while this one cannot act for them. The requests are soft,
 * and slow at first, because this instance does not know whether the others are healthy. While
 * agents leave, the rate doubles. While none leaves (the database is unreachable for all), it stays
 * at one agent in a hundred per second, and each agent is asked less and less often. Made by the
 * roster.
 *
 *     begin ──▶ asking at the lowest rate ──agents leave──▶ twice the rate (bounded) ──end──▶ over
 *                             ▲────none left for two seconds─────┘
 */
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import type { InstanceAddress } from '../../../protocol/link/frames.ts';
import type { SessionTable } from '../sessions/session.ts';
import { doublingPause, Relocation } from './relocation.ts';

interface EvacuationDeps {
  sessions: SessionTable;
  /** Where agents may go. */
  addresses: () => InstanceAddress[];
  /**
   * An agent that was asked and stayed is asked again after this long, then after longer pauses.
   */
  askAgainMs: number;
  clock: Clock;
}

export interface EvacuationPace {
  /** Agents in one period. */
  perPeriod: number;
  quietPeriods: number;
}

const PERIOD_MS = 250;
/** The same rate as in a drain. */
export const MOST_PER_PERIOD = 500;
const LEAST_SHARE = 0.01 / (1_000 / PERIOD_MS);
const QUIET_PERIODS = 8;
const MOST_PAUSE_MS = 60_000;

export function firstPace(agents: number): EvacuationPace {
  return { perPeriod: Math.max(1, Math.ceil(agents * LEAST_SHARE)), quietPeriods: 0 };
}

/** `left`: how many agents left in the last period. */
export function nextPace({ perPeriod, quietPeriods }: EvacuationPace, left: number, agents: number): EvacuationPace {
  if (left > 0) return { perPeriod: Math.min(MOST_PER_PERIOD, perPeriod * 2), quietPeriods: 0 };
  return quietPeriods + 1 < QUIET_PERIODS ? { perPeriod, quietPeriods: quietPeriods + 1 } : firstPace(agents);
}

export class Evacuation {
  readonly #deps: EvacuationDeps;
  #timer: Timer | undefined;

  constructor(deps: EvacuationDeps) {
    this.#deps = deps;
  }

  begin(reason: string): void {
    this.end();
    const { askAgainMs, addresses, clock, sessions } = this.#deps;
    const relocation = new Relocation({ clock, pauseMs: doublingPause(askAgainMs, MOST_PAUSE_MS) });
    let agents = sessions.size;
    let pace = firstPace(agents);
    const ask = () => {
      const places = addresses();
      if (places.length === 0) return;
      relocation.ask({ among: sessions.all(), atMost: pace.perPeriod, reason, addresses: places });
    };
    ask();
    this.#timer = this.#deps.clock.every(PERIOD_MS, () => {
      pace = nextPace(pace, agents - sessions.size, sessions.size);
      agents = sessions.size;
      ask();
    });
  }

  /** Repeating is harmless. */
  end(): void {
    this.#timer?.cancel();
  }
}
