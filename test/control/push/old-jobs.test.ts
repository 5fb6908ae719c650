/** The deletion of old push jobs on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { expiryPart, listAudit } from '../../../lib/control/audit/audit-store.ts';
import { createPushJob, deleteEndedPushJobs } from '../../../lib/control/push/push-store.ts';
import { newPushJob } from '../../interleavings/push-statements.ts';
import { matchLists } from '../../support/match-lists.ts';
import { seatedDatabase } from './job-rows.ts';

t.test('one statement deletes jobs of a bounded number of nodes, the oldest first, and at least one', async (t) => {
  const { database, seats } = await seatedDatabase(t, 4);
  const ended = async (nodes: number, days: number) => {
    const job = newPushJob(seats.slice(0, nodes).map(({ serverUuid }) => serverUuid));
    await createPushJob(database, job);
    await database.query(
      `update cnapi_push_jobs set state = 'ended', outcome = 'complete', state_since = cnapi_now() - $2::int * interval '1 day'
         where id = $1::uuid`,
      [job.id, days],
    );
    return job.id;
  };
  const oldest = await ended(4, 9);
  await ended(1, 8);
  await ended(2, 7);
  const last = await ended(1, 6);
  const young = await ended(1, 1);
  const left = async () => {
    const { rows } = await database.query<{ id: string }>('select id from cnapi_push_jobs order by state_since');
    return rows.map(({ id }) => id);
  };
  const bounds = { days: 5, most: 10, nodes: 3 };

  t.equal(await deleteEndedPushJobs(database, bounds), 1, 'one job has more nodes');
  t.notOk((await left()).includes(oldest));
  t.equal(await deleteEndedPushJobs(database, bounds), 2, 'two jobs have as many');
  t.strictSame(await left(), [last, young]);
  t.equal(await deleteEndedPushJobs(database, bounds), 1);
  t.equal(await deleteEndedPushJobs(database, bounds), 0);
  t.strictSame(await left(), [young]);
  const { rows } = await database.query('select job from cnapi_push_nodes');
  t.strictSame(rows, [{ job: young }]);
});

t.test('an old job leaves a record of its command and its end in the audit', async (t) => {
  const { database, seats } = await seatedDatabase(t, 2);
  const job = { ...newPushJob(seats.map(({ serverUuid }) => serverUuid)), command: 'reboot', actor: 'deploy' };
  await createPushJob(database, job);
  await database.query(
    `update cnapi_push_jobs set state = 'ended', outcome = 'aborted', reason = 'a caller asked for it',
       state_since = cnapi_now() - interval '9 days'`,
  );
  const records = expiryPart({ action: 'DeletePushJob', path: '/push-jobs/', instance: randomUUID() });
  const bounds = { days: 5, most: 10, nodes: 100, records };
  t.equal(await deleteEndedPushJobs(database, bounds), 1);
  t.equal(await deleteEndedPushJobs(database, bounds), 0);
  matchLists(t, await listAudit(database, { limit: 10 }), [
    {
      action: 'DeletePushJob',
      actor: 'expiry',
      path: `/push-jobs/${job.id}`,
      object: job.id,
      status: 204,
      details: {
        command: 'reboot',
        actor: 'deploy',
        status: 'aborted',
        reason: 'a caller asked for it',
        node_count: 2,
        counts: { new: 2 },
      },
    },
  ]);
});
