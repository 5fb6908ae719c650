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
 * What the stream sends before the caller connects is kept for it, also its end. In each state `cut`
 * leads to closed. Whoever connects second is refused.
 */

export type PortState = 'listening' | 'kept' | 'connected' | 'flushing' | 'closed';

/** `broken`: the connection has closed, for whatever reason. */
export type PortEvent = 'connected' | 'ended' | 'late' | 'broken' | 'cut';

/** `flush`: end the connection when the caller has taken everything. `close`: listen no more, and tell. */
export type PortEffect = 'accept' | 'refuse' | 'flush' | 'close';

interface PortStep {
  state: PortState;
  effects: readonly PortEffect[];
}

/** Returns the same step for the same arguments; undefined if the event changes nothing. */
export function stepPort(state: PortState, event: PortEvent): PortStep | undefined {
  const isOpen = state === 'listening' || state === 'kept';
  switch (event) {
    case 'connected':
      if (!isOpen) return { state, effects: ['refuse'] };
      return state === 'listening'
        ? { state: 'connected', effects: ['accept'] }
        : { state: 'flushing', effects: ['accept', 'flush'] };
    case 'ended':
      if (state === 'listening') return { state: 'kept', effects: [] };
      return state === 'connected' ? { state: 'flushing', effects: ['flush'] } : undefined;
    case 'late':
      return isOpen ? { state: 'closed', effects: ['close'] } : undefined;
    case 'broken':
      return state === 'connected' || state === 'flushing' ? { state: 'closed', effects: ['close'] } : undefined;
    case 'cut':
      return state === 'closed' ? undefined : { state: 'closed', effects: ['close'] };
    default:
      return event satisfies never;
  }
}
