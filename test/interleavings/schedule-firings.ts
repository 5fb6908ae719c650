/** New push jobs of schedules: at their times, which these use up, and when a caller runs one. */
import type { NewPushJob, PushJobCreation } from '../../lib/control/push/push-store.ts';
import { runGuard } from '../../lib/control/push/schedules/schedule-change-store.ts';
import { firingGuard } from '../../lib/control/push/schedules/schedule-store.ts';
import type { CallOf, World } from './statement.ts';

export const AT = Date.parse('2020-01-01T01:00:00Z');
export const THEN = Date.parse('2020-01-01T02:00:00Z');

export const asRead = (world: World, kind: 'due' | 'queued') => {
  const id = world.schedule(kind);
  const times =
    kind === 'due' ? { next_at: new Date(AT), queued_at: null } : { next_at: new Date(THEN), queued_at: new Date(AT) };
  return id === undefined ? undefined : { id, changes: 0, ...times };
};

/** The random mix has no schedules: nobody in it carries out their jobs. */
export const firing = (
  kind: 'due' | 'queued',
  newJob: (servers: readonly string[]) => NewPushJob,
): CallOf<[NewPushJob], PushJobCreation> => ({
  args(world) {
    const schedule = asRead(world, kind);
    const job = newJob(world.seats.map(({ serverUuid }) => serverUuid));
    return schedule && [{ ...job, guard: firingGuard(schedule, { at: AT, thenAt: THEN, jobId: job.id }) }];
  },
  exclusive: (creation) =>
    creation === 'created' ? [`the ${kind} time of a schedule`, `the only job of a ${kind} schedule`] : [],
  weight: 0,
});

/** The schedule allows no job beside another one. */
export const run = (newJob: (servers: readonly string[]) => NewPushJob): CallOf<[NewPushJob], PushJobCreation> => ({
  args(world) {
    const schedule = asRead(world, 'due');
    const job = newJob(world.seats.map(({ serverUuid }) => serverUuid));
    return schedule && [{ ...job, guard: runGuard(schedule, { jobId: job.id, actor: undefined, key: undefined }) }];
  },
  exclusive: (creation) => (creation === 'created' ? ['the only job of a due schedule'] : []),
  weight: 0,
});
