/**
 * The states of a port at which the caller of one stream connects. Pure; run by docker-port.ts.
 *
 *     listening ── the caller connects ──► connected ── the stream ends ──► flushing
 *       │    │ the stream ends                 │                                ▲ │
 *       │    ▼                                 │ it breaks                      │ │ it closes
 *       │  kept ── the caller connects ────────┼────────────────────────────────┘ │
 *       │    │                                 ▼                                  │
 *       └────┴── nobody in time ──────────► closed ◄──────────────────────────────┘
 *
 * What the stream sends before the caller connects is kept for it, also its end. In each state
 * `cut` leads to closed. Whoever connects second is refused.
 */

export type PortState = 'listening' | 'kept' | 'connected' | 'flushing' | 'closed';

/** `broken`: the connection has closed, for whatever reason. */
export interface PortEvent {
  type: 'connected' | 'ended' | 'late' | 'broken' | 'cut';
}

/**
 * `flush`: end the connection when the caller has received everything. `close`: stop listening and
 * emit `closed`.
 */
export interface PortEffect {
  do: 'accept' | 'refuse' | 'flush' | 'close';
}

interface PortStep {
  state: PortState;
  effects: readonly PortEffect[];
}

/** An event that does not matter in this state changes nothing. */
export function stepPort(state: PortState, event: PortEvent): PortStep {
  const isOpen = state === 'listening' || state === 'kept';
  switch (event.type) {
    case 'connected':
      if (!isOpen) return to(state, 'refuse');
      return state === 'listening' ? to('connected', 'accept') : to('flushing', 'accept', 'flush');
    case 'ended':
      if (state === 'listening') return to('kept');
      return state === 'connected' ? to('flushing', 'flush') : to(state);
    case 'late':
      return isOpen ? to('closed', 'close') : to(state);
    case 'broken':
      return state === 'connected' || state === 'flushing' ? to('closed', 'close') : to(state);
    case 'cut':
      return state === 'closed' ? to(state) : to('closed', 'close');
    default:
      return event.type satisfies never;
  }
}

function to(state: PortState, ...effects: PortEffect['do'][]): PortStep {
  return { state, effects: effects.map((effect) => ({ do: effect })) };
}
