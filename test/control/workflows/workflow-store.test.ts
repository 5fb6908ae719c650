/** How many workflow jobs may be unfinished, how they are counted, and what a list reads. */
import { randomBytes, randomUUID } from 'node:crypto';
import t from 'tap';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { WorkflowJobs, type WorkflowJobsDeps } from '../../../lib/control/workflows/workflow-jobs.ts';
import {
  countWorkflowJobs,
  createWorkflowJob,
  listWorkflowJobs,
  MAX_UNFINISHED_OF_CALLER,
  MAX_UNFINISHED_WORKFLOWS,
  readUnfinishedWorkflowJob,
  readWorkflowJobOfVm,
} from '../../../lib/control/workflows/workflow-store.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
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

t.test('a list reads the parameters of no job that it does not show them of', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const secret = randomBytes(50_000).toString('hex');
  const script = randomBytes(50_000).toString('hex');
  const create = (maskedParams: object | undefined) =>
    createWorkflowJob(database, {
      ...{ id: randomUUID(), name: 'server-setup', serverUuid: randomUUID(), chain: ['setup'], onerror: [] },
      ...{ params: { script, ...(maskedParams && { secret }) }, maskedParams: maskedParams && { ...maskedParams } },
      ...{ requestHash: 'hash', requestId: undefined, actor: 'alice' },
    });
  for (let count = 0; count < 20; count += 1)
    t.equal(await create(count % 2 === 0 ? undefined : { script, secret: '(secret)' }), 'created');
  const { rows } = await database.query<{ is_exact: boolean }>(
    `select params_bytes = octet_length(coalesce(masked_params, params)::text) as is_exact from cnapi_workflow_jobs`,
  );
  t.ok(rows.every(({ is_exact }) => is_exact));

  /** Blocks of the parameters that are read: those of wide columns lie in a table of their own. */
  const list = async (withParams: boolean, bytes: number) => {
    const blocksRead = async () => {
      const { rows } = await database.query<{ blocks: number }>(
        `select (toast_blks_read + toast_blks_hit)::int as blocks from pg_statio_user_tables
           where relname = 'cnapi_workflow_jobs'`,
      );
      return rows[0]?.blocks ?? 0;
    };
    await database.transaction((connection) => connection.query('select pg_stat_force_next_flush()'));
    const before = await blocksRead();
    const jobs = await database.transaction(async (connection) => {
      const listed = await listWorkflowJobs(connection, { withParams }, { rows: 20, bytes });
      await connection.query('select pg_stat_force_next_flush()');
      return listed;
    });
    return { jobs, blocks: (await blocksRead()) - before };
  };
  const withheld = await list(false, 1);
  t.equal(withheld.jobs.length, 20, 'parameters that are not read do not count');
  t.ok(withheld.jobs.every(({ params }) => Object.keys(params).length === 0));
  t.equal(withheld.blocks, 0);
  const two = await list(true, script.length + 100);
  t.equal(two.jobs.length, 2);
  t.ok(two.jobs.every(({ params }) => params.script === script));
  const all = await list(true, 20 * 2 * script.length);
  t.equal(all.jobs.length, 20);
  t.ok(two.blocks > 0 && two.blocks * 5 < all.blocks, `${two.blocks} blocks for 2 jobs, ${all.blocks} for 20`);
});

t.test('a server has many jobs that create VMs, each for another VM, besides its own', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const [serverUuid, one, two] = [randomUUID(), randomUUID(), randomUUID()];
  const hold = (vmUuid: string) =>
    database.query(
      `insert into cnapi_placement_claims (vm_uuid, server_uuid, owner_uuid, ram, disk, cpu, created_at, expires_at)
         values ($1, $2, 'owner', 1, 0, 0, now(), now() + interval '1 day')`,
      [vmUuid, serverUuid],
    );
  const create = async (vmUuid: string | undefined, server = serverUuid) => {
    const id = randomUUID();
    const creation = await createWorkflowJob(database, {
      ...{ id, name: vmUuid === undefined ? 'server-reboot' : 'vm-provision', serverUuid: server, vmUuid },
      ...{ chain: ['reboot'], onerror: [], params: {}, maskedParams: undefined, requestHash: 'hash' },
      ...{ requestId: undefined, actor: undefined },
    });
    return { id, creation };
  };
  await hold(one);
  const first = await create(one);
  t.equal(first.creation, 'created');
  t.equal((await create(one)).creation, 'busy');
  t.equal((await create(one, randomUUID())).creation, 'busy', 'on no other server either');
  await hold(two);
  t.equal((await create(two)).creation, 'created');
  t.equal(await readUnfinishedWorkflowJob(database, serverUuid), undefined, 'they are not jobs of the server itself');
  const own = await create(undefined);
  t.equal(own.creation, 'created');
  t.equal((await create(undefined)).creation, 'busy');
  t.equal((await readUnfinishedWorkflowJob(database, serverUuid))?.id, own.id);
  t.equal((await readWorkflowJobOfVm(database, one))?.id, first.id);
  await database.query(`update cnapi_workflow_jobs set execution = 'failed', ended_at = cnapi_now() where id = $1`, [
    first.id,
  ]);
  await hold(one);
  const again = await create(one);
  t.equal(again.creation, 'created', 'after the end of the job');
  t.equal((await readWorkflowJobOfVm(database, one))?.id, again.id, 'the newest one');
});

t.test('a caller that has the maximum number of jobs gets the job that it repeats', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const deps = { database, clock, random, log, offerDuties: () => {} };
  const jobs = new WorkflowJobs({
    ...deps,
    config: { slowPollMs: 1_000, slowPollNoBusMs: 1_000 },
  } as unknown as WorkflowJobsDeps);
  const serverUuid = randomUUID();
  const create = (params: object = {}, server = serverUuid) =>
    jobs.create(
      { name: 'server-reboot', serverUuid: server, params: { ...params }, requestId: undefined, actor: 'alice' },
      randomUUID(),
    );
  const first = await create();
  await database.query(
    `insert into cnapi_workflow_jobs (id, name, server_uuid, chain, onerror, params, request_hash, actor)
       select gen_random_uuid(), 'server-reboot', gen_random_uuid(), '{reboot}', '{}', '{}', 'hash', 'alice'
         from generate_series(2, $1::int)`,
    [MAX_UNFINISHED_OF_CALLER],
  );
  t.equal(await create(), first);
  await t.rejects(create({ drain: true }), { code: 'ServerHasWorkflowJob' });
  await t.rejects(create({}, randomUUID()), { code: 'TooManyWorkflowJobs' });
});
