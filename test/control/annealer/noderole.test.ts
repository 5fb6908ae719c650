import t from 'tap';
import { NODEROLE_STATES, type NoderoleState } from '../../../lib/protocol/api/annealer.ts';
import { NODEROLE_EVENTS, type NoderoleEvent, nextNoderoleState, PARENTS, type Parents } from './noderole-rules.ts';

type Row = readonly [NoderoleState, NoderoleEvent, Parents, NoderoleState, string];

/** Every state with every event that can happen in it. */
const MOVES: readonly Row[] = [
  ['proposed', 'commit', 'active', 'todo', 'a commit without parents, or with active ones, makes it due'],
  ['proposed', 'commit', 'waiting', 'blocked', 'a commit with a parent that is not active blocks it'],
  ['proposed', 'commit', 'failed', 'blocked', 'a commit with a failed parent blocks it'],
  ['proposed', 'parents-changed', 'active', 'proposed', 'a proposed one waits for its commit'],
  ['proposed', 'parents-changed', 'failed', 'proposed', 'a failed parent leaves it proposed'],
  ['blocked', 'parents-changed', 'active', 'todo', 'its last parent became active'],
  ['blocked', 'parents-changed', 'waiting', 'blocked', 'one active parent of two is not enough'],
  ['blocked', 'parents-changed', 'failed', 'blocked', 'a failed parent keeps it blocked'],
  ['blocked', 'commit', 'waiting', 'blocked', 'new data of a blocked one waits with it'],
  ['todo', 'claim', 'active', 'transition', 'the annealer begins its run'],
  ['todo', 'commit', 'active', 'todo', 'new data before its run is used by that run'],
  ['todo', 'parents-changed', 'active', 'todo', 'it stays due while its parents are active'],
  ['todo', 'parents-changed', 'waiting', 'blocked', 'a parent that runs again blocks what is due'],
  ['todo', 'parents-changed', 'failed', 'blocked', 'a parent that failed blocks what is due'],
  ['transition', 'succeeded', 'active', 'active', 'a run that succeeds makes it active'],
  ['transition', 'succeeded', 'waiting', 'active', 'a parent that runs again does not undo a success'],
  ['transition', 'succeeded', 'failed', 'blocked', 'a parent failed during the run: as if it had failed afterwards'],
  ['transition', 'failed', 'active', 'error', 'a run that fails for good is an error'],
  ['transition', 'failed', 'failed', 'error', 'its own failure counts more than that of a parent'],
  ['transition', 'postponed', 'active', 'todo', 'while retries are left it is due again, not in error'],
  ['transition', 'postponed', 'waiting', 'blocked', 'a retry waits for its parents'],
  ['transition', 'stale', 'active', 'todo', 'a success on old inputs is repeated'],
  ['transition', 'stale', 'failed', 'blocked', 'the repetition waits for its parents'],
  ['transition', 'commit', 'active', 'transition', 'new data does not change a run that has begun'],
  ['transition', 'parents-changed', 'failed', 'transition', 'a parent does not stop a run that has begun'],
  ['active', 'commit', 'active', 'todo', 'new data makes an active one due again'],
  ['active', 'commit', 'waiting', 'blocked', 'new data waits for a parent that runs'],
  ['active', 'parents-changed', 'active', 'active', 'nothing changes while its parents are active'],
  ['active', 'parents-changed', 'waiting', 'active', 'an active one stays active while a parent runs again'],
  ['active', 'parents-changed', 'failed', 'blocked', 'a failed ancestor blocks its active descendants'],
  ['error', 'retry', 'active', 'todo', 'a retry makes it due again'],
  ['error', 'commit', 'active', 'todo', 'new data is a new try'],
  ['error', 'parents-changed', 'active', 'error', 'it stays in error while its parents are active'],
  ['error', 'parents-changed', 'waiting', 'blocked', 'a parent that runs again takes it from error to blocked'],
  ['error', 'parents-changed', 'failed', 'blocked', 'a parent that fails takes it from error to blocked'],
  ...NODEROLE_STATES.map((state): Row => [state, 'propose', 'active', 'proposed', 'every state can be proposed again']),
];

/** Moves that no run and no user can make. */
const REFUSED: readonly (readonly [NoderoleState, NoderoleEvent, Parents, string])[] = [
  ['proposed', 'claim', 'active', 'a proposed one does not run'],
  ['proposed', 'succeeded', 'active', 'a proposed one does not become active'],
  ['blocked', 'claim', 'active', 'a blocked one does not run'],
  ['blocked', 'succeeded', 'active', 'a blocked one does not become active'],
  ['blocked', 'retry', 'active', 'only an error is retried'],
  ['todo', 'succeeded', 'active', 'what is due becomes active only by a run'],
  ['todo', 'claim', 'waiting', 'no run begins before all parents are active'],
  ['todo', 'claim', 'failed', 'no run begins below a failed parent'],
  ['error', 'succeeded', 'active', 'an error becomes active only by another run'],
  ['error', 'retry', 'waiting', 'a retry needs active parents'],
  ['error', 'retry', 'failed', 'a retry needs parents without errors'],
  ['error', 'claim', 'active', 'an error runs only after a retry'],
  ['active', 'claim', 'active', 'an active one is due before it runs again'],
  ['active', 'retry', 'active', 'what is active needs no retry'],
  ['transition', 'claim', 'active', 'one run at a time'],
  ['transition', 'retry', 'active', 'a run is not retried while it lasts'],
  ['active', 'failed', 'active', 'a late end of a run changes nothing that is active'],
  ['todo', 'postponed', 'active', 'a late end of an attempt changes nothing that is due'],
  ['proposed', 'stale', 'active', 'a late end of a stale run changes nothing that is proposed'],
];

t.test('states of a noderole', async (t) => {
  for (const [state, event, parents, next, what] of MOVES)
    t.equal(nextNoderoleState(state, event, parents), next, `${state}, ${event}, parents ${parents}: ${what}`);
});

t.test('moves that are refused', async (t) => {
  for (const [state, event, parents, what] of REFUSED)
    t.equal(nextNoderoleState(state, event, parents), undefined, `${state}, ${event}, parents ${parents}: ${what}`);
});

t.test('in every state, each event leads to a state or is refused', async (t) => {
  for (const state of NODEROLE_STATES)
    for (const event of NODEROLE_EVENTS)
      for (const parents of PARENTS) {
        const next = nextNoderoleState(state, event, parents);
        const name = `${state}, ${event}, parents ${parents}`;
        if (next === undefined) continue;
        t.ok(NODEROLE_STATES.includes(next), name);
        if (next === 'active') t.ok(state === 'transition' || state === 'active', `${name}: active only by a run`);
        if (next === 'todo' || (next === 'transition' && event === 'claim'))
          t.equal(parents, 'active', `${name}: due only with active parents`);
      }
});
