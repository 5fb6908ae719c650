/** The deletion of old push jobs on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { expiryPart, listAudit } from '../../../../lib/control/audit/audit-store.ts';
import {
  deleteEndedPushJobs,
  deleteSurplusJobs,
  readSurplusJobs,
} from '../../../../lib/control/push/expiry/expiry-store.ts';
import { SurplusJobDeletion } from '../../../../lib/control/push/expiry/surplus-job-deletion.ts';
import { createPushJob } from '../../../../lib/control/push/push-store.ts';
import { newPushJob } from '../../../interleavings/push-statements.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { rowsRead, seatedDatabase } from '../job-rows.ts';

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
  const bounds = { days: 5, limit: 10, nodes: 3 };

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
  const bounds = { days: 5, limit: 10, nodes: 100, records };
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

t.test('of each organization only the newest ended jobs are kept, and the oldest are deleted first', async (t) => {
  const { database } = await seatedDatabase(t, 1);
  await database.query(
    `insert into cnapi_push_jobs (id, organization, command, options, node_count, quorum, voting_timeout_ms,
         run_timeout_ms, abort_timeout_ms, state, outcome, state_since)
       select gen_random_uuid(), j.organization, concat(j.organization, n), '{}', 1, 1, 1, 1, 1, j.state,
           case when j.state = 'ended' then 'complete' end, cnapi_now() - (20 - n) * interval '1 hour'
         from (values ('beta', 'ended', 1, 9), ('acme', 'ended', 1, 3), ('acme', 'voting', 0, 0), ('full', 'ended', 1, 5),
             (null, 'ended', 1, 9)) as j (organization, state, first, last)
           cross join generate_series(j.first, j.last) as n`,
  );
  const left = async () => {
    const { rows } = await database.query<{ organization: string | null; commands: string }>(
      `select organization, string_agg(command, ' ' order by state_since) as commands from cnapi_push_jobs
         group by organization order by organization nulls last`,
    );
    return Object.fromEntries(rows.map(({ organization, commands }) => [organization ?? 'none', commands]));
  };
  const before = await left();
  const records = expiryPart({ action: 'DeletePushJob', path: '/push-jobs/', instance: randomUUID() });
  const surplus = new SurplusJobDeletion(database, { keep: 3, limit: 4, nodes: 100 });

  t.equal(await surplus.batch(records), 4);
  t.same(await left(), { ...before, beta: 'beta5 beta6 beta7 beta8 beta9' }, 'a batch is bounded');
  t.equal(await surplus.batch(records), 2);
  t.equal(await surplus.batch(records), 2);
  t.equal(await surplus.batch(records), 0);
  const kept = { beta: 'beta7 beta8 beta9', acme: 'acme0 acme1 acme2 acme3', full: 'full3 full4 full5' };
  t.same(await left(), { ...before, ...kept });
  t.equal(await surplus.batch(records), 0);
  const audit = await listAudit(database, { limit: 20 });
  t.equal(audit.length, 8);
  t.ok(audit.every(({ action, actor }) => action === 'DeletePushJob' && actor === 'expiry'));
});

t.test('a batch of the surplus of an organization reads no more of its jobs than it deletes', async (t) => {
  const { database } = await seatedDatabase(t, 1);
  await database.query(
    `insert into cnapi_push_jobs (id, organization, command, options, node_count, quorum, voting_timeout_ms,
         run_timeout_ms, abort_timeout_ms, state, outcome, state_since)
       select gen_random_uuid(), o, 'true', '{}', 1, 1, 1, 1, 1, 'ended', 'complete', cnapi_now() - n * interval '1 minute'
         from unnest(array['acme', 'beta']) as o cross join generate_series(1, 3000) as n`,
  );
  await database.query('vacuum analyze cnapi_push_jobs');
  const surplus = await readSurplusJobs(database, { after: 'acme', keep: 2_000 });
  const { organizationUuid: organization = '', upTo } = surplus ?? {};
  if (upTo === undefined) throw new Error('there is no surplus');
  t.equal(organization, 'beta');
  const reads = await database.transaction(async (connection) => {
    const before = await rowsRead(connection, ['cnapi_push_jobs']);
    t.equal(await deleteSurplusJobs(connection, { organizationUuid: organization, upTo, limit: 5, nodes: 100 }), 5);
    return (await rowsRead(connection, ['cnapi_push_jobs'])) - before;
  });
  t.ok(reads <= 50, `${reads} rows`);
});
