/** What becomes of a noderole, as the SQL is to do it (cnapi_next_noderole). Pure. */
import type { NoderoleState } from '../../../lib/protocol/api/annealer.ts';

/**
 * - `commit`: its proposed data was committed, and differs from what was committed before.
 * - `parents-changed`: a parent entered another state.
 * - `claim`: the annealer begins a run.
 * - `succeeded`, `failed`: the last attempt of its run has ended. `postponed`: an attempt has
 *   failed, and others are left. `stale`: the run has succeeded, but on inputs that have changed.
 * - `retry`: a user wants another run after a failure.
 * - `propose`: it is to be edited, and does not run before the next commit.
 */
export const NODEROLE_EVENTS = [
  'commit',
  'parents-changed',
  'claim',
  'succeeded',
  'stale',
  'postponed',
  'failed',
  'retry',
  'propose',
] as const;
export type NoderoleEvent = (typeof NODEROLE_EVENTS)[number];

/**
 * `active`: all parents are, or there are none. `failed`: one is in error, or is blocked by one
 * that is. `waiting`: otherwise.
 */
export const PARENTS = ['active', 'waiting', 'failed'] as const;
export type Parents = (typeof PARENTS)[number];

/**
 * The state after the event; undefined if the event cannot happen in this state: a noderole becomes
 * active only through a run, and begins a run only from `todo`.
 */
export function nextNoderoleState(
  state: NoderoleState,
  event: NoderoleEvent,
  parents: Parents,
): NoderoleState | undefined {
  const due = parents === 'active' ? 'todo' : 'blocked';
  switch (event) {
    case 'propose':
      return 'proposed';
    case 'commit':
      return state === 'transition' ? state : due;
    case 'parents-changed':
      return afterParents(state, parents);
    case 'claim':
      return state === 'todo' && parents === 'active' ? 'transition' : undefined;
    case 'retry':
      return state === 'error' && parents === 'active' ? 'todo' : undefined;
    case 'succeeded':
      if (state !== 'transition') return undefined;
      return parents === 'failed' ? 'blocked' : 'active';
    case 'stale':
    case 'postponed':
      return state === 'transition' ? due : undefined;
    case 'failed':
      return state === 'transition' ? 'error' : undefined;
    default:
      return event satisfies never;
  }
}

function afterParents(state: NoderoleState, parents: Parents): NoderoleState {
  switch (state) {
    case 'proposed':
    case 'transition':
      return state;
    case 'blocked':
      return parents === 'active' ? 'todo' : state;
    case 'todo':
    case 'error':
      return parents === 'active' ? state : 'blocked';
    case 'active':
      return parents === 'failed' ? 'blocked' : state;
    default:
      return state satisfies never;
  }
}
