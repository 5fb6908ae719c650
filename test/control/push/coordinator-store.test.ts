/** What a coordinator decided by an earlier count of nodes, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { HeldDuty } from '../../../lib/control/duty/duty.ts';
import { claimDuties } from '../../../lib/control/duty/duty-store.ts';
import { addPushNodes } from '../../../lib/control/push/change-store.ts';
import { advanceJob, endJob, startNodes } from '../../../lib/control/push/coordinator-store.ts';
import { storeVotes } from '../../../lib/control/push/courier-store.ts';
import { createPushJob, MAX_UNFINISHED, PUSH_DUTY, readPushJob } from '../../../lib/control/push/push-store.ts';
import { migrations } from '../../../lib/control/schema.ts';
import { cancelTask } from '../../../lib/control/tasks/record/task-store.ts';
import { newPushJob, votesOf } from '../../interleavings/push-statements.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { liveRun } from '../legacy/support/legacy-seats.ts';
import { seat } from '../tasks/support/task-database.ts';

t.test('a job whose last node has ended goes on if nodes were added before its end', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const run = await liveRun(database);
  const incarnation = randomUUID();
  const newServer = async () => {
    const { serverUuid } = await seat(database, { run });
    await database.query('update cnapi_roster_authority set incarnation = $2::uuid where server_uuid = $1::uuid', [
      serverUuid,
      incarnation,
    ]);
    return serverUuid;
  };
  const serverUuid = await newServer();
  const { id, ...job } = newPushJob([serverUuid]);
  await createPushJob(database, { id, ...job });
  const [duty] = await claimDuties(database, run, { kinds: [PUSH_DUTY], most: 1 });
  const held = duty as HeldDuty;
  await storeVotes(database, votesOf(id, { seats: [{ serverUuid, incarnation }] }, true));
  const task = randomUUID();
  await startNodes(database, held, { ids: [task], timeoutMs: 60_000 });
  await cancelTask(database, task);
  t.equal((await advanceJob(database, held)).tally.was_ready, 1, 'no node is left');

  const added = await addPushNodes(database, id, { nodes: [{ serverUuid: await newServer(), name: 'new' }], most: 10 });
  t.match(added, { refusal: null });
  t.equal(await endJob(database, held, 'complete'), 1);
  t.match(await readPushJob(database, id), { state: 'running', counts: { new: 1, was_ready: 1 } });
});

t.test('an organization has a limited number of unfinished jobs, and so has the zone', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { serverUuid } = await seat(database, { run: await liveRun(database) });
  const fill = (organization: string | null, count: number) =>
    database.query(
      `insert into cnapi_push_jobs (id, organization, command, options, node_count, quorum, voting_timeout_ms, run_timeout_ms, abort_timeout_ms)
         select gen_random_uuid(), $1::text, 'true', '{}', 1, 1, 1, 1, 1 from generate_series(1, $2::int)`,
      [organization, count],
    );
  const created = (organization: string | undefined) =>
    createPushJob(database, { ...newPushJob([serverUuid]), organization });
  await fill('acme', MAX_UNFINISHED.ofOrganization - 1);
  t.equal(await created('acme'), true);
  t.equal(await created('acme'), false);
  t.equal(await created('other'), true);
  await fill(null, MAX_UNFINISHED.inAll - MAX_UNFINISHED.ofOrganization - 1);
  t.equal(await created(undefined), false);
  const { rows } = await database.query('select 1 from cnapi_duties');
  t.equal(rows.length, 2, 'what is refused leaves nothing behind');
  await database.query(`update cnapi_push_jobs set state = 'ended', outcome = 'complete'`);
  t.equal(await created('acme'), true);
});
