/**
 * The states of a stream at its instance. Pure; run by caller-stream.ts.
 *
 *     waiting ── the agent joins ──► open ── its status ──► reported
 *        │ late                        │ lost                  │ it closes
 *        ▼                             ▼                       ▼
 *      ended ◄──────── the caller closes, or the instance stops (any) ── ended
 *
 * The caller is told why a stream ends that its agent did not end.
 */

export type StreamState = 'waiting' | 'open' | 'reported' | 'ended';

export type StreamEvent =
  | { type: 'joined' }
  | { type: 'status' }
  | { type: 'late' }
  | { type: 'agent closed' }
  | { type: 'caller closed' }
  | { type: 'cut'; code: string; message: string };

export type StreamEffect =
  /** Tell the caller, as a status, and close when it has read everything. */
  { do: 'tell'; code: string; message: string } | { do: 'close caller' } | { do: 'close agent' };

interface StreamStep {
  state: StreamState;
  effects: readonly StreamEffect[];
}

const LATE: StreamEffect = {
  do: 'tell',
  code: 'StreamTimeout',
  message: 'the agent did not open its end of the stream in time; the task says why',
};
const LOST: StreamEffect = {
  do: 'tell',
  code: 'StreamLost',
  message: 'the connection to the agent broke; the task says what became of its work',
};

/** Returns the same step for the same arguments; undefined if the event changes nothing. */
export function stepStream(state: StreamState, event: StreamEvent): StreamStep | undefined {
  if (state === 'ended') return undefined;
  switch (event.type) {
    case 'joined':
      return state === 'waiting' ? { state: 'open', effects: [] } : undefined;
    case 'status':
      return state === 'open' ? { state: 'reported', effects: [] } : undefined;
    case 'late':
      return state === 'waiting' ? { state: 'ended', effects: [LATE] } : undefined;
    case 'agent closed':
      if (state === 'waiting') return undefined;
      return { state: 'ended', effects: [state === 'reported' ? { do: 'close caller' } : LOST] };
    case 'caller closed':
      return { state: 'ended', effects: state === 'waiting' ? [] : [{ do: 'close agent' }] };
    case 'cut': {
      const { code, message } = event;
      const told: StreamEffect = state === 'reported' ? { do: 'close caller' } : { do: 'tell', code, message };
      return { state: 'ended', effects: state === 'waiting' ? [told] : [told, { do: 'close agent' }] };
    }
    default:
      return event satisfies never;
  }
}
