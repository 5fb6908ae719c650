/** How many workflow jobs may be unfinished, and how they are counted. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import {
  countWorkflowJobs,
  createWorkflowJob,
  MAX_UNFINISHED_OF_CALLER,
  MAX_UNFINISHED_WORKFLOWS,
} from '../../../lib/control/workflows/workflow-store.ts';
import { freshDatabase } from '../../support/postgres.ts';

t.test('the unfinished jobs of a caller are bounded, and those of all callers', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const create = (actor: string | undefined) =>
    createWorkflowJob(database, {
      ...{ id: randomUUID(), name: 'server-reboot', serverUuid: randomUUID(), chain: ['reboot'], onerror: [], actor },
      ...{ params: {}, maskedParams: undefined, requestHash: 'hash', requestId: undefined },
    });
  const insert = (actor: string | null, count: number, execution: string) =>
    database.query(
      `insert into cnapi_workflow_jobs (id, name, server_uuid, chain, onerror, params, request_hash, actor, execution, ended_at)
         select gen_random_uuid(), 'server-reboot', gen_random_uuid(), '{reboot}', '{}', '{}', 'hash', $1::text, $3::text,
             case when $3::text in ('queued', 'running') then null else cnapi_now() end
           from generate_series(1, $2::int)`,
      [actor, count, execution],
    );
  await insert('alice', MAX_UNFINISHED_OF_CALLER, 'succeeded');
  await insert('alice', MAX_UNFINISHED_OF_CALLER - 1, 'running');
  t.equal(await create('alice'), 'created', 'jobs that have ended do not count');
  t.equal(await create('alice'), 'caller-full');
  t.equal(await create('bob'), 'created', 'another caller has room');
  t.equal(await create(undefined), 'created');
  t.same(await countWorkflowJobs(database), { queued: 3, running: MAX_UNFINISHED_OF_CALLER - 1 });
  await insert(null, MAX_UNFINISHED_OF_CALLER - 1, 'queued');
  t.equal(await create('bob'), 'full');
  const counts = Object.values(await countWorkflowJobs(database)).reduce((sum, each) => sum + each, 0);
  t.ok(counts > MAX_UNFINISHED_WORKFLOWS);
  t.equal(await create(undefined), 'full', 'the bound of all is the one that is told');
});
