/**
 * The lists of push jobs on a real Postgres: how pages are bounded, and where the next one begins.
 */
import t from 'tap';
import { listOrganizationJobs } from '../../../lib/control/chef/push-jobs/organization-jobs-store.ts';
import { endJob } from '../../../lib/control/push/coordinator/coordinator-store.ts';
import type { PushJobPage } from '../../../lib/control/push/job-page-store.ts';
import { createPushJob, deletePushJob, listPushJobs, type NewPushJob } from '../../../lib/control/push/push-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { CHEF_JOB_STATUSES, type ChefJobStatus } from '../../../lib/protocol/api/chef.ts';
import type { Cursor } from '../../../lib/protocol/api/contract/cursor.ts';
import { newPushJob } from '../../interleavings/push-statements.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { claimedJob, rowsRead, seatedDatabase } from './job-rows.ts';

t.test('lists of push jobs', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 3);
  const create = async (more: Partial<NewPushJob> = {}) => {
    const job = { ...newPushJob(seats.map(({ serverUuid }) => serverUuid)), organization: 'acme', ...more };
    await createPushJob(database, job);
    return job.id;
  };
  t.beforeEach(() => database.query('with duties as (delete from cnapi_duties) delete from cnapi_push_jobs'));

  interface Bounds {
    limit?: number;
    bytes?: number;
    nodes?: number;
  }
  type Read = (after: Cursor | undefined, bounds: Required<Bounds>) => Promise<PushJobPage<{ id: string }>>;
  const lists: Record<string, Read> = {
    'all jobs': (after, { limit, bytes, nodes }) => listPushJobs(database, { after, limit }, { bytes, nodes }),
    'those of an organization': (after, { limit, bytes }) =>
      listOrganizationJobs(database, 'acme', { after, limit, bytes, withCounts: true }),
  };
  const pagesOf = async (read: Read, { limit = 10, bytes = 1_000_000, nodes = 1_000_000 }: Bounds) => {
    const pages: string[][] = [];
    for (let after: Cursor | undefined; ; ) {
      const page = await read(after, { limit, bytes, nodes });
      pages.push(page.jobs.map(({ id }) => id));
      after = page.next;
      if (after === undefined) return pages;
    }
  };

  for (const [name, read] of Object.entries(lists)) {
    await t.test(`${name}: a page ends when its commands and options are large`, async (t) => {
      const small = await create();
      const large = [await create({ command: 'x'.repeat(3_000) }), await create({ command: 'y'.repeat(3_000) })];
      const masked = { env: { SECRET: '(secret)' } };
      const secret = await create({ options: { env: { SECRET: 'z'.repeat(9_000) } }, maskedOptions: masked });
      const [first = '', second = ''] = large;
      t.strictSame(await pagesOf(read, { bytes: 2_000 }), [[secret, second], [first], [small]]);
      t.strictSame(await pagesOf(read, { bytes: 1 }), [[secret], [second], [first], [small]]);
      t.strictSame(await pagesOf(read, {}), [[secret, second, first, small]]);
    });

    await t.test(`${name}: the next page begins after a job that was deleted meanwhile`, async (t) => {
      const ids = [await create(), await create(), await create()].reverse();
      const page = await read(undefined, { limit: 2, bytes: 1_000, nodes: 1_000 });
      t.strictSame(page.jobs.length, 2);
      await database.query(`update cnapi_push_jobs set state = 'ended', outcome = 'complete' where id = $1`, [ids[1]]);
      t.ok(await deletePushJob(database, ids[1] ?? ''));
      const rest = await read(page.next, { limit: 2, bytes: 1_000, nodes: 1_000 });
      t.strictSame(
        rest.jobs.map(({ id }) => id),
        [ids[2]],
      );
    });
  }

  await t.test(
    'a page ends when it has many nodes to count; those of ended jobs are counted at their end',
    async (t) => {
      const duty = await claimedJob(database, run, { seats });
      await endJob(database, duty, 'complete');
      const { rows } = await database.query('select counts from cnapi_push_jobs');
      t.strictSame(rows, [{ counts: null }], 'it has not ended');
      await database.query(
        `update cnapi_push_nodes set state = case server_uuid when $1 then 'failed' else 'nacked' end`,
        [seats[0]?.serverUuid],
      );
      t.equal(await endJob(database, duty, 'complete'), 0);
      await database.query('alter table cnapi_push_nodes disable trigger all');
      await database.query('delete from cnapi_push_nodes');
      await database.query('alter table cnapi_push_nodes enable trigger all');
      const [first, second] = [await create(), await create()];
      const { jobs } = await listPushJobs(database, { limit: 10 });
      t.strictSame(
        jobs.map(({ id, counts }) => ({ id, counts })),
        [
          { id: second, counts: { new: 3 } },
          { id: first, counts: { new: 3 } },
          { id: duty.id, counts: { failed: 1, nacked: 2 } },
        ],
      );
      const read = lists['all jobs'] as Read;
      t.strictSame(await pagesOf(read, { nodes: 3 }), [[second], [first], [duty.id]]);
    },
  );

  await t.test('jobs are found by the beginning of their ids', async (t) => {
    const [first] = [await create(), await create()];
    const { jobs } = await listPushJobs(database, { idPrefix: first.slice(0, 9), limit: 10 });
    t.strictSame(
      jobs.map(({ id }) => id),
      [first],
    );
  });
});

t.test("each state of a job has one of Chef's statuses, and the list of that status contains it", async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const rows: [state: string, outcome: string | null, hasRun: boolean, status: ChefJobStatus][] = [
    ['waiting', null, false, 'voting'],
    ['voting', null, false, 'voting'],
    ['running', null, true, 'running'],
    ['aborting', null, false, 'voting'],
    ['aborting', null, true, 'running'],
    ['ended', 'complete', true, 'complete'],
    ['ended', 'quorum_failed', false, 'quorum_failed'],
    ['ended', 'timed_out', true, 'timed_out'],
    ['ended', 'aborted', true, 'aborted'],
  ];
  for (const [state, outcome, hasRun, status] of rows) {
    await database.query('delete from cnapi_push_jobs');
    await database.query(
      `insert into cnapi_push_jobs (id, organization, command, options, node_count, quorum, voting_timeout_ms,
           run_timeout_ms, abort_timeout_ms, bytes, counts, state, outcome, has_run, ending)
         values (gen_random_uuid(), 'acme', 'true', '{}', 1, 1, 1, 1, 1, 10, '{}', $1::text, $2::text, $3::boolean,
           case when $1::text = 'aborting' then 'aborted' end)`,
      [state, outcome, hasRun],
    );
    for (const wanted of CHEF_JOB_STATUSES) {
      const page = { status: wanted, limit: 10, bytes: 1_000, withCounts: false };
      const { jobs } = await listOrganizationJobs(database, 'acme', page);
      t.strictSame(
        jobs.map((job) => job.status),
        wanted === status ? [status] : [],
        `${state} ${outcome}: the list of ${wanted}`,
      );
    }
  }
});

t.test('a list of the jobs of a schedule reads these, and not all there are', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const schedule = '5c4ed01e-1a2b-4c3d-8e4f-5a6b7c8d9e0f';
  const count = 3;
  // Its jobs are the oldest of all.
  await database.query(
    `with jobs as (
       insert into cnapi_push_jobs (id, command, options, node_count, quorum, voting_timeout_ms, run_timeout_ms,
           abort_timeout_ms, bytes, counts, state, outcome, created_at)
         select gen_random_uuid(), n::text, '{}', 1, 1, 1, 1, 1, 10, '{}', 'ended', 'complete',
             cnapi_now() + n * interval '1 second' from generate_series(1, 2000) as n
         returning id, command::int as number
     )
     insert into cnapi_push_firings (schedule, number, job)
       select case when j.number <= $2::int then $1::uuid else gen_random_uuid() end, j.number, j.id from jobs j`,
    [schedule, count],
  );
  await database.query('vacuum analyze cnapi_push_jobs, cnapi_push_firings');
  const TABLES = ['cnapi_push_jobs', 'cnapi_push_firings'];
  for (const [limit, status, commands] of [
    [10, undefined, ['3', '2', '1']],
    [2, undefined, ['3', '2']],
    [10, 'running', []],
  ] as const)
    await database.transaction(async (connection) => {
      const before = await rowsRead(connection, TABLES);
      const { jobs, next } = await listPushJobs(connection, { schedule, status, limit });
      const reads = (await rowsRead(connection, TABLES)) - before;
      t.strictSame(
        jobs.map(({ command }) => command),
        commands,
      );
      t.ok(reads <= 2 * count, `limit ${limit}, status ${status}: ${reads} rows read`);
      if (next === undefined) return;
      const { jobs: rest } = await listPushJobs(connection, { schedule, limit, after: next });
      t.strictSame(
        rest.map(({ command }) => command),
        ['1'],
        'the next page goes on',
      );
    });
});

t.test('a list of one status reads the jobs that it shows, and not all there are', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  await database.query(
    `insert into cnapi_push_jobs (id, organization, command, options, node_count, quorum, voting_timeout_ms,
         run_timeout_ms, abort_timeout_ms, bytes, counts, state, outcome)
       select gen_random_uuid(), 'acme', 'true', '{}', 1, 1, 1, 1, 1, 10, '{}', case when n > 3 then 'ended' else 'running' end,
           case when n > 3 then 'complete' end from generate_series(1, $1::int) as n`,
    [2_000],
  );
  await database.query('vacuum analyze cnapi_push_jobs');
  const TABLES = ['cnapi_push_jobs'];
  const limit = 10;
  const lists: Record<string, (connection: Queryable, status: 'running' | 'aborted') => Promise<PushJobPage<unknown>>> =
    {
      'all jobs': (connection, status) => listPushJobs(connection, { status, limit }),
      'those of an organization': (connection, status) =>
        listOrganizationJobs(connection, 'acme', { status, limit, bytes: 1_000_000, withCounts: true }),
    };
  for (const [name, list] of Object.entries(lists))
    for (const [status, count] of [
      ['running', 3],
      ['aborted', 0],
    ] as const)
      await database.transaction(async (connection) => {
        const before = await rowsRead(connection, TABLES);
        const { jobs } = await list(connection, status);
        const reads = (await rowsRead(connection, TABLES)) - before;
        t.equal(jobs.length, count, `${name}, ${status}`);
        t.ok(reads <= limit, `${name}, ${status}: ${reads} jobs read`);
      });
});
