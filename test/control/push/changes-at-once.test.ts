/** Two callers change a push job at the same moment, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { addPushNodes } from '../../../lib/control/push/change-store.ts';
import { PushJobs } from '../../../lib/control/push/push-jobs.ts';
import { readPushJob } from '../../../lib/control/push/push-store.ts';
import type { Bus } from '../../../lib/platform/bus/bus.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { claimedJob, seatedDatabase } from './job-rows.ts';

/** A job of one node, and a caller that adds a node whenever a change was refused. */
async function adding(t: Test, limit: number) {
  const { database, run, seats } = await seatedDatabase(t, 1);
  const { id } = await claimedJob(database, run, { seats });
  let left = limit;
  const through: Queryable = {
    async query(text, values, options) {
      const isRead = text.includes('from cnapi_push_jobs j where j.id');
      if (isRead && left > 0) {
        left -= 1;
        await addPushNodes(database, id, { nodes: [{ serverUuid: randomUUID(), name: 'new' }], limit: 100 });
      }
      return database.query(text, values, options);
    },
  };
  const jobs = new PushJobs({
    ...{ database: through, clock: new ManualClock(), random: systemRandom, log: silentLogger },
    config: { slowPollMs: 5_000, slowPollNoBusMs: 5_000 },
    bus: { publish: () => {} } as unknown as Bus,
    ...{ session: () => undefined, unsent: { isHalfFull: false } },
    ...{ tasks: { notifyAuthorities: () => {} }, offerDuties: () => {}, waitlist: {} as never, buckets: {} as never },
  });
  return { id, jobs, row: () => readPushJob(database, id) };
}

t.test('a quorum for which there were too few nodes is set when they have been added meanwhile', async (t) => {
  const { id, jobs, row } = await adding(t, 1);
  await jobs.change(id, { changes: { quorum: 2 } });
  t.match(await row(), { node_count: 2, quorum: 2 });
});

t.test('a change is refused for what holds, and not for an abort that nobody has asked for', async (t) => {
  const { id, jobs } = await adding(t, 0);
  await t.rejects(jobs.change(id, { changes: { quorum: 2 } }), { code: 'InvalidParameters' });
  await jobs.abort(id, { how: 'soft', actor: 'bob' });
  const refusal = { code: 'PushJobNotChangeable', message: /is being aborted/ };
  await t.rejects(jobs.change(id, { changes: { quorum: 1 } }), refusal);
});
