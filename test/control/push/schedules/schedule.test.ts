/** What becomes of each time of a schedule, row by row. */
import t from 'tap';
import { cronTimes } from '../../../../lib/control/push/schedules/cron-times.ts';
import {
  decideFiring,
  type Firing,
  type ScheduleState,
  toScheduleStatus,
} from '../../../../lib/control/push/schedules/schedule.ts';

const HOURLY = cronTimes('0 * * * *', 'UTC');
const EACH_MINUTE = cronTimes('* * * * *', 'UTC');
const ms = (time: string | undefined) => (time === undefined ? undefined : Date.parse(`2030-01-01T${time}Z`));

interface Given extends Omit<Partial<ScheduleState>, 'nextAt' | 'queuedAt'> {
  next?: string;
  queued?: string;
  now: string;
  times?: typeof HOURLY;
}
type Expected = Partial<Record<'at' | 'thenAt', string>> & { do: Firing['do']; outcome?: string };

const rows: Record<string, [Given, Expected]> = {
  'before its time it waits': [{ next: '03:00', now: '02:59:59.999' }, { do: 'wait' }],
  'at its time a job starts, and the next time is set': [
    { next: '03:00', now: '03:00' },
    { do: 'start', at: '03:00', thenAt: '04:00' },
  ],
  'a schedule of one time has none afterwards': [
    { next: '03:00', now: '03:00:01', times: undefined as never },
    { do: 'start', at: '03:00' },
  ],
  'without a next time nothing happens': [{ now: '03:00' }, { do: 'wait' }],
  'of several times that passed, only the last one counts': [
    { next: '03:00', now: '03:07:30', times: EACH_MINUTE },
    { do: 'start', at: '03:07', thenAt: '03:08' },
  ],
  'a time an hour ago is made up for': [
    { next: '03:00', now: '04:00', times: undefined as never },
    { do: 'start', at: '03:00' },
  ],
  'a time longer ago than an hour is missed': [
    { next: '03:00', now: '04:00:01', times: undefined as never },
    { do: 'pass', outcome: 'missed', at: '03:00' },
  ],
  'a time of a cron expression an hour ago is made up for, after many hours without an instance': [
    { next: '03:00', now: '20:00', times: cronTimes('0 3,19 * * *', 'UTC') },
    { do: 'start', at: '19:00' },
  ],
  'after many hours without an instance, the last time within an hour counts': [
    { next: '03:00', now: '20:30' },
    { do: 'start', at: '20:00', thenAt: '21:00' },
  ],
  'a cron expression whose last time is longer ago goes on with the next one': [
    { next: '03:00', now: '20:30', times: cronTimes('0 3 * * *', 'UTC') },
    { do: 'pass', outcome: 'missed', at: '03:00' },
  ],
  'skip: while the last job runs, the time is left out': [
    { next: '03:00', now: '03:00', isBusy: true },
    { do: 'pass', outcome: 'skipped', at: '03:00', thenAt: '04:00' },
  ],
  'allow: while the last job runs, another one starts': [
    { next: '03:00', now: '03:00', isBusy: true, overlap: 'allow' },
    { do: 'start', at: '03:00', thenAt: '04:00' },
  ],
  'queue: while the last job runs, the time waits': [
    { next: '03:00', now: '03:00', isBusy: true, overlap: 'queue' },
    { do: 'queue', at: '03:00', thenAt: '04:00' },
  ],
  'queue: while one time waits, the next one is left out': [
    { next: '04:00', queued: '03:00', now: '04:00', isBusy: true, overlap: 'queue' },
    { do: 'pass', outcome: 'skipped', at: '04:00', thenAt: '05:00' },
  ],
  'queue: when the last job has ended, the time that waits starts, however long ago': [
    { next: '07:00', queued: '03:00', now: '06:59', overlap: 'queue' },
    { do: 'start', at: '03:00', thenAt: '07:00' },
  ],
  'queue: the time that waits starts before the next one': [
    { next: '04:00', queued: '03:00', now: '04:00', overlap: 'queue' },
    { do: 'start', at: '03:00', thenAt: '04:00' },
  ],
  'allow: a time that waits since the policy was queue starts at once, before the next one': [
    { next: '04:00', queued: '03:00', now: '04:00', isBusy: true, overlap: 'allow' },
    { do: 'start', at: '03:00', thenAt: '04:00' },
  ],
  'skip: a time that waits since the policy was queue still waits, and the next one is left out': [
    { next: '04:00', queued: '03:00', now: '04:00', isBusy: true, overlap: 'skip' },
    { do: 'pass', outcome: 'skipped', at: '04:00', thenAt: '05:00' },
  ],
  'queue: while the last job runs, nothing starts': [
    { next: '04:00', queued: '03:00', now: '03:30', isBusy: true, overlap: 'queue' },
    { do: 'wait' },
  ],
};

for (const [name, [{ next, queued, now, ...given }, expected]] of Object.entries(rows))
  t.test(name, async (t) => {
    const state = { overlap: 'skip', isBusy: false, nextAt: ms(next), queuedAt: ms(queued), ...given } as const;
    const times = 'times' in given ? given.times : HOURLY;
    const { at, thenAt, ...firing } = decideFiring(state, times, ms(now) ?? 0) as Firing & {
      at?: number;
      thenAt?: number;
    };
    t.match(firing, { do: expected.do, ...(expected.outcome && { outcome: expected.outcome }) });
    t.equal(at, ms(expected.at));
    if (expected.thenAt !== undefined) t.equal(thenAt, ms(expected.thenAt));
  });

t.test('a search through the times of years without an instance is short', async (t) => {
  let asked = 0;
  const times = {
    next(after: number) {
      asked += 1;
      return EACH_MINUTE.next(after);
    },
  };
  const state = { overlap: 'skip', isBusy: false, nextAt: Date.parse('2020-01-01'), queuedAt: undefined } as const;
  t.match(decideFiring(state, times, Date.parse('2030-01-01T00:00:30Z')), {
    do: 'start',
    at: Date.parse('2030-01-01'),
  });
  t.ok(asked < 100, `${asked} times`);
});

t.test('a schedule has ended once it has no next time and none that waits, whether or not it is paused', async (t) => {
  const time = new Date(0);
  for (const [isPaused, nextAt, queuedAt, status] of [
    [false, time, null, 'active'],
    [false, null, time, 'active'],
    [true, time, null, 'paused'],
    [true, null, time, 'paused'],
    [false, null, null, 'ended'],
    [true, null, null, 'ended'],
  ] as const)
    t.equal(toScheduleStatus(isPaused, nextAt, queuedAt), status);
});
