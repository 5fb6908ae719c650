/** The feed of a job with more nodes than one step of its coordinator takes, on a real Postgres. */
import t from 'tap';
import { advanceJob, endJob, NODES_A_STEP } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { storeVotes } from '../../../../lib/control/push/messenger/messenger-store.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { votesOf } from '../../../interleavings/push-statements.ts';
import { claimedJob, seatedDatabase } from '../job-rows.ts';

const LEFT = 5;

const eventsOf = async (database: Queryable): Promise<(string | number)[][]> => {
  const { rows } = await database.query<{ name: string; count: number }>(
    'select name, coalesce(cardinality(nodes), 1) as count from cnapi_push_feed order by last',
  );
  return rows.map(({ name, count }) => [name, count]);
};

t.test('a step tells of a bounded number of nodes, and the end of the job comes after all of them', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, NODES_A_STEP + LEFT);
  const duty = await claimedJob(database, run, { seats, fields: { organization: 'acme' } });
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  t.match(await advanceJob(database, duty), { isMore: true, newEvents: NODES_A_STEP });
  t.match(await advanceJob(database, duty), { isMore: false, newEvents: LEFT });
  const votes = [
    ['quorum_vote', 500],
    ['quorum_vote', 500],
    ['quorum_vote', LEFT],
  ];
  t.same(await eventsOf(database), votes);

  // All commands have ended since the last round.
  await database.query(`update cnapi_push_nodes set state = 'succeeded'`);
  t.equal(await endJob(database, duty, 'complete'), LEFT, 'the job has not ended');
  t.equal(await endJob(database, duty, 'complete'), 0);
  t.same((await eventsOf(database)).slice(votes.length), [
    ['run_start', 500],
    ['run_start', 500],
    ['run_complete', 500],
    ['run_complete', 500],
    ['run_start', LEFT],
    ['run_complete', LEFT],
    ['job_complete', 1],
  ]);
});
