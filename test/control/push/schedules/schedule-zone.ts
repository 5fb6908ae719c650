/** Instances that carry out schedules over one database. All clocks are the test's. */
import { randomUUID } from 'node:crypto';
import type { Test } from 'tap';
import { buildBucket } from '../../../../lib/control/documents/document-bucket.ts';
import { PushJobs } from '../../../../lib/control/push/push-jobs.ts';
import {
  PushSchedules,
  type ScheduleChanges,
  type ScheduleRequest,
} from '../../../../lib/control/push/schedules/schedules.ts';
import { migrations } from '../../../../lib/control/subsystem-list.ts';
import type { Bus } from '../../../../lib/platform/bus/bus.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { BucketStore } from '../../../../lib/platform/moray/bucket-store.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { serverGroups } from '../../../../lib/protocol/api/documents/server-groups.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { freshDatabase } from '../../../support/postgres.ts';

export const SERVERS: readonly string[] = [randomUUID(), randomUUID()];

export async function scheduleZone(t: Test) {
  const { database, open } = await freshDatabase(t, { migrations });
  const buckets = new BucketStore({ database });
  await buckets.ensureBucket(buildBucket(serverGroups));
  const known = new Map<string, string>(SERVERS.map((uuid) => [uuid, `host-${uuid.slice(0, 4)}`]));
  const instances: Date[] = [];
  const setDatabaseTime = (time: string) =>
    database.query(
      `create or replace function cnapi_now() returns timestamptz language sql stable as $$ select timestamptz '${time}' $$`,
    );
  const hints: string[] = [];
  const instance = (through: (database: Queryable) => Queryable = (database) => database) => {
    const place = instances.push(new Date('2030-01-01T00:00:00Z')) - 1;
    const clock = Object.assign(new ManualClock(), { wallTime: () => instances[place]?.getTime() ?? 0 });
    const ports = { database: through(open()), clock, random: systemRandom, log: silentLogger };
    return new PushSchedules({
      ...ports,
      config: { slowPollMs: 5_000 },
      servers: {
        hostnames: async (uuids) => new Map([...known].filter(([uuid]) => uuids.includes(uuid))),
        select: async () => ({ servers: [], unknown: undefined }),
      },
      pushJobs: new PushJobs({
        ...ports,
        config: { slowPollMs: 5_000, slowPollNoBusMs: 5_000 },
        bus: { publish: () => {} } as unknown as Bus,
        ...{ session: () => undefined, unsent: { isHalfFull: false } },
        tasks: { notifyAuthorities: () => {} },
        offerDuties: () => hints.push('duties'),
        waitlist: {} as never,
        buckets,
      }),
    });
  };
  const at = async (time: string) => {
    for (const date of instances) date.setTime(Date.parse(time));
    await setDatabaseTime(time);
  };
  await at('2030-01-01T00:00:00Z');
  /** All schedules that failed, or whose instance died, may be tried again. */
  const rest = () => database.query('update cnapi_push_schedules set held_until = null');
  /** The times that started a job. */
  const jobs = async (schedule: string) =>
    (
      await database.query<{ at: Date; job: string }>(
        `select f.at, f.job from cnapi_push_firings f join cnapi_push_jobs j on j.id = f.job where schedule = $1::uuid and f.at is not null order by f.at`,
        [schedule],
      )
    ).rows.map((row) => row.at.toISOString().slice(0, 16));
  const endJobs = () =>
    database.query(`update cnapi_push_jobs set state = 'ended', outcome = 'complete' where state <> 'ended'`);
  return { database, hints, known, instances, instance, at, setDatabaseTime, rest, jobs, endJobs };
}

export const request = (fields: Partial<ScheduleRequest>): ScheduleRequest => ({
  ...{ id: randomUUID(), at: undefined, cron: undefined, timeZone: undefined, overlap: undefined, actor: 'alice' },
  ...{ job: { command: 'echo', servers: SERVERS, quorum: '50%' }, record: undefined },
  ...fields,
});

/** A request of bob to change these of a schedule. */
export const changes = (fields: Partial<ScheduleChanges>): ScheduleChanges => ({
  ...{ at: undefined, cron: undefined, timeZone: undefined, overlap: undefined, job: undefined, actor: 'bob' },
  ...fields,
});

/** Bob runs a schedule beside its times. */
export const run = (
  schedules: PushSchedules,
  id: string,
  { job = randomUUID(), key }: { job?: string; key?: string } = {},
): Promise<string> => {
  const repeat = key === undefined ? undefined : { key, actor: 'bob', hash: id };
  return schedules.run(id, { jobId: job, actor: 'bob', repeat, record: undefined });
};

/** Calls `first` once, before a statement with this text is sent. */
export function before(text: string, first: () => Promise<unknown>) {
  let isDone = false;
  return (database: Queryable): Queryable => ({
    async query(sent, values, options) {
      if (sent.includes(text) && !isDone) {
        isDone = true;
        await first();
      }
      return database.query(sent, values, options);
    },
  });
}
