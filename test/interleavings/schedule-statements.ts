/** Rows of the table: schedules of push jobs. */
import { randomUUID } from 'node:crypto';
import {
  createSchedule,
  deleteEndedSchedules,
  deleteOldFirings,
  deleteSchedule,
  listSchedules,
  type NewSchedule,
  type PassedTime,
  passSchedule,
  pauseSchedule,
  readDueSchedules,
  readNextTime,
  readSchedule,
  readScheduleTime,
  resumeSchedule,
} from '../../lib/control/push/schedules/schedule-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { AT, asRead, THEN } from './schedule-firings.ts';
import { type CallOf, reads, type ScheduleKind, type Statement, writes } from './statement.ts';

const LATER = Date.parse('2030-01-01T00:00:00Z');

export const newSchedule = (fields: Partial<NewSchedule> = {}): NewSchedule => ({
  ...{ id: randomUUID(), at: undefined, cron: '0 * * * *', timeZone: 'UTC', overlap: 'queue', job: {} },
  ...{ actor: undefined, nextAt: AT, ...fields },
});

/** One that is due, one whose time waits, one that is paused, and one that has ended. */
export async function createSchedules(database: Queryable, job: string): Promise<Record<ScheduleKind, string>> {
  const made = async () => {
    const schedule = newSchedule();
    await createSchedule(database, schedule, 100);
    return schedule.id;
  };
  const ids = { due: await made(), queued: await made(), paused: await made(), ended: await made() };
  const read = (id: string) => ({ id, next_at: new Date(AT), queued_at: null });
  const passed = { at: AT, thenAt: THEN, queueAt: undefined, outcome: 'skipped', reason: 'asked' } as const;
  await passSchedule(database, read(ids.queued), { ...passed, queueAt: AT });
  await pauseSchedule(database, ids.paused);
  await passSchedule(database, read(ids.ended), { ...passed, thenAt: undefined });
  await database.query(`update cnapi_push_schedules set updated_at = updated_at - interval '2 days'`);
  await database.query(`insert into cnapi_push_firings (schedule, at, job) values ($1::uuid, '2019-12-31', $2::uuid)`, [
    ids.due,
    job,
  ]);
  return ids;
}

const ofSchedule = (kind: ScheduleKind): CallOf<[string], unknown> => ({
  args(world) {
    const id = world.schedule(kind);
    return id === undefined ? undefined : [id];
  },
});

type Passed = Parameters<typeof passSchedule> extends [unknown, ...infer Rest] ? Rest : never;
const pass = (kind: 'due' | 'queued', time: Partial<PassedTime>): CallOf<Passed, boolean> => ({
  args(world) {
    const schedule = asRead(world, kind);
    const passed = { at: AT, thenAt: THEN, queueAt: undefined, outcome: 'skipped', reason: 'asked', ...time };
    return schedule && ([schedule, passed] as unknown as Passed);
  },
  exclusive: (isPassed) => (isPassed ? [`the ${kind} time of a schedule`] : []),
});

const statements: readonly Statement[] = [
  writes(createSchedule, {
    new: { args: (world) => (world.schedule('due') === undefined ? undefined : [newSchedule(), 100]) },
  }),
  writes(passSchedule as never as (database: Queryable, ...args: Passed) => Promise<boolean>, {
    skipped: pass('due', {}),
    queued: pass('due', { queueAt: AT, outcome: undefined }),
    'skipped while one waits': pass('queued', { at: THEN, thenAt: LATER, queueAt: AT }),
  }),
  writes(pauseSchedule, { due: ofSchedule('due'), queued: ofSchedule('queued') }),
  writes(resumeSchedule, {
    paused: {
      args(world) {
        const id = world.schedule('paused');
        return id === undefined ? undefined : [id, LATER];
      },
    },
  }),
  writes(deleteSchedule, { due: ofSchedule('due') }),
  writes(deleteEndedSchedules, { 'older than a day': { args: () => [1, 100] } }),
  writes(deleteOldFirings, {
    all: {
      args: (world) => (world.schedule('due') === undefined ? undefined : [{ keep: 0, most: 100, nodes: 10_000 }]),
    },
  }),
  reads(readSchedule, (world) => ofSchedule('due').args(world)),
  reads(listSchedules, () => [{ limit: 10, bytes: 1_000 }]),
  reads(readScheduleTime, () => [LATER]),
  reads(readDueSchedules, () => [LATER, { most: 10 }]),
  reads(readNextTime, () => [LATER]),
];

/** The random mix has no schedules: nobody in it carries out their jobs. */
export const scheduleStatements: readonly Statement[] = statements.map((statement) => ({
  ...statement,
  calls: statement.calls.map((call) => ({ ...call, weight: 0 })),
}));
