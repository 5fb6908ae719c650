/** Rows of the table: schedules of push jobs. */
import { randomUUID } from 'node:crypto';
import {
  type ChangedSchedule,
  changeSchedule,
  deleteSchedule,
  pauseSchedule,
  readWholeSchedule,
  resumeSchedule,
} from '../../lib/control/push/schedules/schedule-change-store.ts';
import {
  claimDueSchedules,
  deleteEndedSchedules,
  deleteOldJobs,
  insertSchedule,
  listSchedules,
  type NewSchedule,
  readClaimedSchedules,
  readNextTime,
  readSchedule,
  readScheduleTime,
  recordFailedTry,
  type UsedTime,
  useUpTime,
} from '../../lib/control/push/schedules/schedule-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { AT, asRead, THEN } from './schedule-firings.ts';
import { type CallOf, reads, type ScheduleKind, type Statement, writes } from './statement.ts';

const LATER = Date.parse('2030-01-01T00:00:00Z');

export const newSchedule = (fields: Partial<NewSchedule> = {}): NewSchedule => ({
  ...{ id: randomUUID(), at: undefined, cron: '0 * * * *', timeZone: 'UTC', overlap: 'queue', job: {} },
  ...{ actor: undefined, nextAt: AT, ...fields },
});

/**
 * Creates a schedule that is due, one whose time waits, one that is paused and one that has ended.
 */
export async function createSchedules(database: Queryable, job: string): Promise<Record<ScheduleKind, string>> {
  const made = async () => {
    const schedule = newSchedule();
    await insertSchedule(database, schedule, 100);
    return schedule.id;
  };
  const ids = { due: await made(), queued: await made(), paused: await made(), ended: await made() };
  const read = (id: string) => ({ id, changes: 0, next_at: new Date(AT), queued_at: null });
  const passed = { at: AT, thenAt: THEN, queueAt: undefined, outcome: 'skipped', reason: 'asked' } as const;
  await useUpTime(database, read(ids.queued), { ...passed, queueAt: AT });
  await pauseSchedule(database, ids.paused, undefined);
  await useUpTime(database, read(ids.ended), { ...passed, thenAt: undefined });
  await database.query(`update cnapi_push_schedules set updated_at = updated_at - interval '2 days'`);
  await database.query(
    `with job as (
       insert into cnapi_push_jobs (id, command, options, node_count, quorum, voting_timeout_ms, run_timeout_ms,
           abort_timeout_ms, state, outcome)
         values ($2::uuid, 'x', '{}', 0, 1, 1, 1, 1, 'ended', 'complete') returning id
     ), schedule as (
       update cnapi_push_schedules set fired = 1 where id = $1::uuid returning id
     )
     insert into cnapi_push_firings (schedule, at, number, job)
       select schedule.id, '2019-12-31', 1, job.id from schedule, job`,
    [ids.due, job],
  );
  return ids;
}

const ofSchedule = (kind: ScheduleKind): CallOf<[string], unknown> => ({
  args(world) {
    const id = world.schedule(kind);
    return id === undefined ? undefined : [id];
  },
});

const pause = (kind: ScheduleKind): CallOf<[string, string], boolean> => ({
  args(world) {
    const id = world.schedule(kind);
    return id === undefined ? undefined : [id, 'me'];
  },
});

type Noted = Parameters<typeof recordFailedTry> extends [unknown, ...infer Rest] ? Rest : never;
type Passed = Parameters<typeof useUpTime> extends [unknown, ...infer Rest] ? Rest : never;
const pass = (kind: 'due' | 'queued', time: Partial<UsedTime>): CallOf<Passed, boolean> => ({
  args(world) {
    const schedule = asRead(world, kind);
    const passed = { at: AT, thenAt: THEN, queueAt: undefined, outcome: 'skipped', reason: 'asked', ...time };
    return schedule && ([schedule, passed] as unknown as Passed);
  },
  exclusive: (isPassed) => (isPassed ? [`the ${kind} time of a schedule`] : []),
});

/** If several calls change the same version of a schedule, only one succeeds. */
const change = (
  values: Pick<ChangedSchedule, 'job' | 'nextAt'>,
  kind: ScheduleKind = 'due',
): CallOf<[ChangedSchedule], boolean> => ({
  args(world) {
    const id = world.schedule(kind);
    const asked = { changes: 0, changedBy: undefined, isOtherJob: false };
    return id === undefined ? undefined : [{ ...newSchedule({ id }), ...asked, asked: values, ...values }];
  },
  exclusive: (isChanged) => (isChanged ? [`the change of the ${kind} schedule`] : []),
});

const statements: readonly Statement[] = [
  writes(insertSchedule, {
    new: { args: (world) => (world.schedule('due') === undefined ? undefined : [newSchedule(), 100]) },
  }),
  writes(useUpTime as never as (database: Queryable, ...args: Passed) => Promise<boolean>, {
    skipped: pass('due', {}),
    queued: pass('due', { queueAt: AT, outcome: undefined }),
    'skipped while one waits': pass('queued', { at: THEN, thenAt: LATER, queueAt: AT }),
  }),
  writes(pauseSchedule, { due: pause('due'), queued: pause('queued') }),
  writes(resumeSchedule, {
    paused: {
      args(world) {
        const id = world.schedule('paused');
        return id === undefined
          ? undefined
          : [
              { id, changes: 0 },
              { nextAt: LATER, actor: 'me' },
            ];
      },
    },
  }),
  writes(changeSchedule, {
    'its job': change({ job: { command: 'other' }, nextAt: undefined }),
    'its times': change({ job: {}, nextAt: LATER }),
    'of one that is paused': change({ job: {}, nextAt: LATER }, 'paused'),
  }),
  writes(deleteSchedule, { due: ofSchedule('due') }),
  writes(deleteEndedSchedules, { 'older than a day': { args: () => [1, 100] } }),
  writes(claimDueSchedules, {
    due: {
      args: (world) => (world.schedule('due') === undefined ? undefined : [LATER, 10]),
      exclusive: (ids) => ids.map((id) => `the claim of schedule ${id}`),
    },
  }),
  writes(recordFailedTry as never as (database: Queryable, ...args: Noted) => Promise<void>, {
    due: {
      args(world) {
        const schedule = asRead(world, 'due');
        return schedule && ([schedule, { reason: 'full', message: 'full' }] as unknown as Noted);
      },
    },
  }),
  writes(deleteOldJobs, {
    all: {
      args: (world) => (world.schedule('due') === undefined ? undefined : [{ keep: 0, limit: 100, nodes: 10_000 }]),
    },
  }),
  reads(readSchedule, (world) => ofSchedule('due').args(world)),
  reads(readWholeSchedule, (world) => ofSchedule('due').args(world)),
  reads(listSchedules, () => [{ limit: 10, bytes: 1_000 }]),
  reads(readScheduleTime, () => [LATER]),
  reads(readClaimedSchedules, (world) => [LATER, [world.schedule('due') ?? randomUUID()]]),
  reads(readNextTime, () => [LATER]),
];

/** The random mix has no schedules: nobody in it carries out their jobs. */
export const scheduleStatements: readonly Statement[] = statements.map((statement) => ({
  ...statement,
  calls: statement.calls.map((call) => ({ ...call, weight: 0 })),
}));
