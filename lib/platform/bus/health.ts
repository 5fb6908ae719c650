/**
 * Decides whether the bus still delivers messages. The process publishes one beat per period on a
 * topic to which only it subscribes. Pure; `connection-bus.ts` sends the beats and feeds the
 * events.
 *
 *              lost, or `MISSES_TO_UNHEALTHY` misses in a row
 *     healthy ──────────────────────────────────────────▶ unhealthy ──▶ at `MISSES_TO_GIVE_UP` misses
 *             ◀──────────────────────────────────────────               the connection is given up,
 *                        the latest beat came back                      which is `lost`
 *
 * A miss is a beat that has not come back one period later. A tick that is itself late counts
 * nothing: it only proves that this process was not reading.
 */
const MISSES_TO_UNHEALTHY = 3;
const MISSES_TO_GIVE_UP = 6;
/** A tick is late when it comes this many periods after the previous one. */
export const LATE_TICK_PERIODS = 1.5;

export interface Health {
  readonly healthy: boolean;
  readonly misses: number;
  /** Sequence of the latest beat sent; 0 before the first beat. */
  readonly sent: number;
  /** Sequence of the latest beat that came back. */
  readonly received: number;
}

export type HealthEvent =
  /** One period has passed; the next beat is about to be sent. */
  | { type: 'tick'; late: boolean }
  | { type: 'received'; sequence: number }
  /** The connection was lost. */
  | { type: 'lost' };

export const unprovenHealth: Health = { healthy: false, misses: 0, sent: 0, received: 0 };

/** The connection has to be closed; then comes `lost`. */
interface HealthEffect {
  do: 'give-up';
}

interface HealthStep {
  state: Health;
  effects: readonly HealthEffect[];
}

export function stepHealth(health: Health, event: HealthEvent): HealthStep {
  switch (event.type) {
    case 'tick':
      return afterTick(health, event.late);
    case 'received':
      if (event.sequence !== health.sent) return to(health);
      return to({ ...health, healthy: true, misses: 0, received: event.sequence });
    case 'lost':
      return to({ ...health, healthy: false, misses: 0, received: health.sent });
    default:
      return event satisfies never;
  }
}

const to = (state: Health, ...effects: HealthEffect[]): HealthStep => ({ state, effects });

function afterTick(health: Health, late: boolean): HealthStep {
  const missed = health.received !== health.sent && !late;
  const misses = health.misses + (missed ? 1 : 0);
  const healthy = health.healthy && misses < MISSES_TO_UNHEALTHY;
  const state = { ...health, misses, healthy, sent: health.sent + 1 };
  return misses >= MISSES_TO_GIVE_UP ? to(state, { do: 'give-up' }) : to(state);
}
