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

/** An event that does not matter in this state changes nothing. */
export function stepStream(state: StreamState, event: StreamEvent): StreamStep {
  if (state === 'ended') return to(state);
  switch (event.type) {
    case 'joined':
      return to(state === 'waiting' ? 'open' : state);
    case 'status':
      return to(state === 'open' ? 'reported' : state);
    case 'late':
      return state === 'waiting' ? to('ended', LATE) : to(state);
    case 'agent closed':
      if (state === 'waiting') return to(state);
      return to('ended', state === 'reported' ? { do: 'close caller' } : LOST);
    case 'caller closed':
      return state === 'waiting' ? to('ended') : to('ended', { do: 'close agent' });
    case 'cut': {
      const { code, message } = event;
      const told: StreamEffect = state === 'reported' ? { do: 'close caller' } : { do: 'tell', code, message };
      return state === 'waiting' ? to('ended', told) : to('ended', told, { do: 'close agent' });
    }
    default:
      return event satisfies never;
  }
}

const to = (state: StreamState, ...effects: StreamEffect[]): StreamStep => ({ state, effects });
