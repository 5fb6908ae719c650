/** What agents are asked, from the rows of a real Postgres. */
import t from 'tap';
import { readPrepares } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { createPushJob } from '../../../../lib/control/push/push-store.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../../lib/protocol/limits.ts';
import { newPushJob } from '../../../interleavings/push-statements.ts';
import { seatedDatabase } from '../job-rows.ts';

t.test('agents wait for their start as long as any job may run, because its timeouts may change', async (t) => {
  const { database, seats } = await seatedDatabase(t, 1);
  const job = newPushJob(seats.map(({ serverUuid }) => serverUuid));
  await createPushJob(database, job);
  const prepares = await readPrepares(database, [job.id]);
  t.equal(prepares.get(job.id)?.readyMs, MAX_TASK_TIMEOUT_MS);
});
