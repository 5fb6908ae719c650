/**
 * The states of the audit's record of one request. Pure; run by request-audit.ts.
 *
 *     new ── begin ──► beginning ── written ──► begun ── handle ──┐
 *      │                                                          ▼
 *      └── handle ──► handling ── write ──► writing ── written ──► recorded
 *
 * The record of most routes is written before the handler is called. A handler of the others writes
 * it in the statement of its change; it may try again, or make a second change. In the states
 * beginning and writing the record may exist or not: the answer of the database is not there, or is
 * an error.
 */

export type RecordState = 'new' | 'beginning' | 'begun' | 'handling' | 'writing' | 'recorded';

/** `end`: the request has its answer. `isLimited`: it was refused because of a caller's limit. */
export type RecordEvent = { type: 'begin' | 'handle' | 'write' | 'written' } | { type: 'end'; isLimited: boolean };

/** `end`: write the outcome into the record. `refuse`: write a record with the outcome. */
type RecordEffect = { do: 'end' } | { do: 'refuse'; mayHaveBegun: boolean };

interface RecordStep {
  state: RecordState;
  effects: readonly RecordEffect[];
}

const NEXT: Readonly<Record<RecordState, { readonly [Type in RecordEvent['type']]?: RecordState }>> = {
  new: { begin: 'beginning', handle: 'handling' },
  beginning: { written: 'begun' },
  begun: { handle: 'recorded' },
  // `written`: what was asked for needed no change.
  handling: { write: 'writing', written: 'recorded' },
  writing: { write: 'writing', written: 'recorded' },
  recorded: { write: 'recorded', written: 'recorded' },
};

/** @throws Error for an event that cannot come in this state */
export function stepRecord(state: RecordState, event: RecordEvent): RecordStep {
  if (event.type === 'end') return { state, effects: effectsOfEnd(state, event.isLimited) };
  const next = NEXT[state][event.type];
  if (next === undefined) throw new Error(`An audit record that is ${state} cannot have the event ${event.type}`);
  return { state: next, effects: [] };
}

/** Whether the request may have changed something. */
export function mayHaveChanged(state: RecordState): boolean {
  return state === 'handling' || state === 'writing' || state === 'recorded';
}

/** A flood of refusals because of a limit would fill the audit; metrics count them. */
function effectsOfEnd(state: RecordState, isLimited: boolean): readonly RecordEffect[] {
  switch (state) {
    case 'begun':
    case 'recorded':
      return [{ do: 'end' }];
    case 'beginning':
    case 'writing':
      return [{ do: 'refuse', mayHaveBegun: true }];
    case 'new':
    case 'handling':
      return isLimited ? [] : [{ do: 'refuse', mayHaveBegun: false }];
    default:
      return state satisfies never;
  }
}
