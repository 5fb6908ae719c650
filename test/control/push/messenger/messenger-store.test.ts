/** What agents are asked, from the rows of a real Postgres. */
import t from 'tap';
import { readPrepares, storeVotes } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { createPushJob, listPushNodes } from '../../../../lib/control/push/push-store.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../../lib/protocol/limits.ts';
import { newPushJob, votesOf } from '../../../interleavings/push-statements.ts';
import { claimedJob, seatedDatabase } from '../job-rows.ts';

t.test('agents wait for their start as long as any job may run, because its timeouts may change', async (t) => {
  const { database, seats } = await seatedDatabase(t, 1);
  const job = newPushJob(seats.map(({ serverUuid }) => serverUuid));
  await createPushJob(database, job);
  const prepares = await readPrepares(database, [job.id]);
  t.equal(prepares.get(job.id)?.readyMs, MAX_TASK_TIMEOUT_MS);
});

t.test(
  'an agent of another version that votes no for an unknown reason has refused, and its words are kept',
  async (t) => {
    const { database, run, seats } = await seatedDatabase(t, 4);
    const duty = await claimedJob(database, run, { seats });
    const said = [
      { reason: 'on-fire', message: undefined },
      { reason: 'on-fire', message: 'the rack burns' },
      { reason: undefined, message: undefined },
      // A reason that only cnapi gives.
      { reason: 'job-ended', message: undefined },
    ];
    const votes = votesOf(duty.id, { seats }, false).map((vote, index) => ({ ...vote, ...said[index] }));
    t.same(await storeVotes(database, votes), ['stored', 'stored', 'stored', 'stored']);
    const nodes = await listPushNodes(database, duty.id, {});
    t.same(
      nodes.map(({ state, reason, message }) => [state, reason, message]),
      [
        ['unavailable', 'refused', 'on-fire'],
        ['unavailable', 'refused', 'the rack burns'],
        ['unavailable', 'refused', null],
        ['unavailable', 'refused', 'job-ended'],
      ],
    );
  },
);
