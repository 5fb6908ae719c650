/** What becomes of a noderole, in SQL (cnapi_next_noderole): each state with each event. */
import t from 'tap';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { NODEROLE_STATES, type NoderoleState } from '../../../lib/protocol/api/annealer.ts';
import { freshDatabase } from '../../support/postgres.ts';

type NoderoleEvent =
  | 'commit'
  | 'parents-changed'
  | 'claim'
  | 'succeeded'
  | 'stale'
  | 'postponed'
  | 'failed'
  | 'retry'
  | 'propose';

type Parents = 'active' | 'waiting' | 'failed';

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

t.test('the states of a noderole', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const next = async (state: string, event: string, parents: string) => {
    const { rows } = await database.query<{ next: NoderoleState | null }>(
      'select cnapi_next_noderole($1::text, $2::text, $3::text) as next',
      [state, event, parents],
    );
    return rows[0]?.next;
  };
  for (const [state, event, parents, expected, what] of MOVES)
    t.equal(await next(state, event, parents), expected, `${state}, ${event}, parents ${parents}: ${what}`);
  for (const [state, event, parents, what] of REFUSED)
    t.equal(await next(state, event, parents), null, `${state}, ${event}, parents ${parents}: ${what}`);
});

t.test('a noderole is active only by a run, and due only with active parents', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ state: string; event: string; parents: string; next: string | null }>(
    `select s as state, e as event, p as parents, cnapi_next_noderole(s, e, p) as next
       from unnest($1::text[]) s, unnest($2::text[]) e, unnest('{active, waiting, failed}'::text[]) p`,
    [NODEROLE_STATES, [...new Set(MOVES.map(([, event]) => event))]],
  );
  t.equal(rows.length, NODEROLE_STATES.length * 9 * 3);
  for (const { state, event, parents, next } of rows) {
    const name = `${state}, ${event}, parents ${parents}`;
    if (next === 'active') t.ok(state === 'transition' || state === 'active', name);
    if (next === 'todo' || event === 'claim') t.ok(next === null || parents === 'active', name);
  }
});
