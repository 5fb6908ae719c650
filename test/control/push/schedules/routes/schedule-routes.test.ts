/** What callers see of a schedule. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { Actor } from '../../../../../lib/control/access/token.ts';
import { pushScheduleRoutes } from '../../../../../lib/control/push/schedules/routes/schedule-routes.ts';
import type { ScheduleRow } from '../../../../../lib/control/push/schedules/schedule-store.ts';
import { systemRandom } from '../../../../../lib/platform/random.ts';
import type { Role } from '../../../../../lib/protocol/api/contract/roles.ts';

const row: ScheduleRow = {
  ...{ id: randomUUID(), at: null, cron: '@daily', time_zone: 'UTC', overlap: 'skip', actor: 'alice' },
  ...{ job_actor: 'bob', changed_by: 'bob', changed_at: new Date() },
  ...{ job: { command: 'deploy --key=hidden', where: ['hostname=hidden'] }, has_file: true, is_paused: false },
  ...{ next_at: new Date(), queued_at: null, last_at: new Date(), last_outcome: 'refused', last_job: null },
  ...{ last_job_state: null, last_job_outcome: null, last_job_counts: null },
  ...{ last_reason: 'InvalidParameters: where', last_message: 'where: hidden', created_at: new Date() },
};

const missing = () => Promise.reject(new Error('not here'));
const routes = pushScheduleRoutes({
  pushSchedules: {
    ...{ create: missing, times: missing, change: missing, run: missing, pause: missing },
    ...{ resume: missing, delete: missing },
    get: async () => row,
    list: async () => ({ schedules: [row], next: undefined }),
  },
  pushJobs: { findByIdempotencyKey: missing, get: missing },
  random: systemRandom,
});

async function answerTo(role: Role, path: string): Promise<string> {
  const route = routes.find((one) => one.method === 'GET' && one.path === path);
  const actor: Actor = { name: 'somebody', roles: [role] };
  const answer = await route?.handler({ params: { id: row.id }, actor } as never);
  return JSON.stringify(answer);
}

t.test(
  'those who may not see the contents of tasks see no part of the job, nor why it was refused in words',
  async (t) => {
    for (const path of ['/push-schedules', '/push-schedules/:id']) {
      t.match(await answerTo('operator', path), /deploy --key=hidden.*"last_message":"where: hidden"/);
      const answer = await answerTo('reader', path);
      t.notMatch(answer, /hidden/);
      t.match(answer, /"withheld":true.*"last_reason":"InvalidParameters: where"/);
    }
  },
);
