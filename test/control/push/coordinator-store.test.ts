/** What a coordinator decided by an earlier count of nodes, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { HeldDuty } from '../../../lib/control/duty/duty.ts';
import { claimDuties } from '../../../lib/control/duty/duty-store.ts';
import { addPushNodes } from '../../../lib/control/push/change-store.ts';
import { advanceJob, endJob, startNodes } from '../../../lib/control/push/coordinator-store.ts';
import { storeVotes } from '../../../lib/control/push/courier-store.ts';
import { createPushJob, PUSH_DUTY, readPushJob } from '../../../lib/control/push/push-store.ts';
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
