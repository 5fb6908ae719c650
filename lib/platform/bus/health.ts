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
  | { kind: 'tick'; late: boolean }
  | { kind: 'received'; sequence: number }
  /** The connection was lost. */
  | { kind: 'lost' };

export const unprovenHealth: Health = { healthy: false, misses: 0, sent: 0, received: 0 };

export function stepHealth(health: Health, event: HealthEvent): Health {
  switch (event.kind) {
    case 'tick':
      return afterTick(health, event.late);
    case 'received':
      if (event.sequence !== health.sent) return health;
      return { ...health, healthy: true, misses: 0, received: event.sequence };
    case 'lost':
      return { ...health, healthy: false, misses: 0, received: health.sent };
    default:
      return event satisfies never;
  }
}

export function isGivenUp(health: Health): boolean {
  return health.misses >= MISSES_TO_GIVE_UP;
}

function afterTick(health: Health, late: boolean): Health {
  const missed = health.received !== health.sent && !late;
  const misses = health.misses + (missed ? 1 : 0);
  return { ...health, misses, healthy: health.healthy && misses < MISSES_TO_UNHEALTHY, sent: health.sent + 1 };
}
