/** When cron expressions come next, in time zones whose clocks change. */
import cron from 'node-cron';
import t from 'tap';
import { complaintOfCron, cronTimes, isTimeZone } from '../../../../lib/control/push/schedules/cron-times.ts';

function nextTimes(expression: string, zone: string, after: string, count: number): string[] {
  const times = cronTimes(expression, zone);
  const found: string[] = [];
  for (let at: number | undefined = Date.parse(after); found.length < count; ) {
    at = times.next(at);
    if (at === undefined) break;
    found.push(new Date(at).toISOString().replace(':00.000Z', 'Z'));
  }
  return found;
}

const rows: Record<string, [expression: string, zone: string, after: string, times: string[]]> = {
  'every five minutes': ['*/5 * * * *', 'UTC', '2030-01-01T00:04:59Z', ['2030-01-01T00:05Z', '2030-01-01T00:10Z']],
  'a time that is now comes next time': ['0 3 * * *', 'UTC', '2030-01-01T03:00:00Z', ['2030-01-02T03:00Z']],
  'a name': ['@daily', 'UTC', '2030-01-01T03:00:00Z', ['2030-01-02T00:00Z', '2030-01-03T00:00Z']],
  'a time zone': ['30 9 * * mon-fri', 'Europe/Berlin', '2030-01-04T12:00:00Z', ['2030-01-07T08:30Z']],
  'a time zone of half an hour': ['0 9 * * *', 'Asia/Kolkata', '2030-01-01T00:00:00Z', ['2030-01-01T03:30Z']],
  'a day that begins the day before in UTC': [
    '0 0 1 * *',
    'Pacific/Kiritimati',
    '2030-01-01T00:00:00Z',
    ['2030-01-31T10:00Z'],
  ],
  'the last day of the month': ['0 0 L * *', 'UTC', '2030-01-31T00:00:00Z', ['2030-02-28T00:00Z', '2030-03-31T00:00Z']],
  'a leap day, beyond a century without one': ['0 0 29 2 *', 'UTC', '2096-03-01T00:00:00Z', ['2104-02-29T00:00Z']],
  'the 13th or a Friday, when both are given': [
    '0 0 13 * fri',
    'UTC',
    '2030-01-10T00:00:00Z',
    ['2030-01-11T00:00Z', '2030-01-13T00:00Z'],
  ],
  'a Monday, whatever the day of the month': [
    '0 0 * * 1',
    'UTC',
    '2030-01-01T00:00:00Z',
    ['2030-01-07T00:00Z', '2030-01-14T00:00Z'],
  ],
  'a local time that the clocks skip is left out': [
    '30 2 * * *',
    'Europe/Berlin',
    '2030-03-30T00:00:00Z',
    ['2030-03-30T01:30Z', '2030-04-01T00:30Z'],
  ],
  'a local time that the clocks repeat comes twice': [
    '30 2 * * *',
    'Europe/Berlin',
    '2030-10-26T12:00:00Z',
    ['2030-10-27T00:30Z', '2030-10-27T01:30Z', '2030-10-28T01:30Z'],
  ],
  'no minute is missing while the clocks change': [
    '*/30 * * * *',
    'America/New_York',
    '2030-11-03T05:00:00Z',
    ['2030-11-03T05:30Z', '2030-11-03T06:00Z', '2030-11-03T06:30Z', '2030-11-03T07:00Z'],
  ],
  'a day of 23 hours does not hide the next one': [
    '0 0 31 3 *',
    'Europe/Berlin',
    '2030-03-30T22:00:00Z',
    ['2030-03-30T23:00Z'],
  ],
  'clocks that change by half an hour': [
    '15 2 * * *',
    'Australia/Lord_Howe',
    '2030-04-06T00:00:00Z',
    ['2030-04-06T15:45Z', '2030-04-07T15:45Z'],
  ],
};

for (const [name, [expression, zone, after, times]] of Object.entries(rows))
  t.test(name, async (t) => t.same(nextTimes(expression, zone, after, times.length), times));

t.test('what is no cron expression is refused, without reading it at any size', async (t) => {
  for (const expression of [
    '',
    '* * * *',
    '* * * * * *',
    '60 * * * *',
    '0-99999999999 * * * *',
    '@reboot',
    '@every 1m',
    'a b c d e',
    `${'*,'.repeat(200)}* * * * *`,
  ])
    t.type(complaintOfCron(expression), 'string', expression.slice(0, 40));
  for (const expression of ['* * * * *', '@hourly', ' 0 0 * * 7 ', '*/15 1,2 1-5 JAN mon#1'])
    t.equal(complaintOfCron(expression), undefined);
});

t.test('a time zone is one that the runtime knows', async (t) => {
  t.same(['UTC', 'Europe/Berlin', 'Mars/Olympus', ''].map(isTimeZone), [true, true, false, false]);
});

t.test('nothing is left behind in the list of tasks of node-cron', async (t) => {
  const before = cron.getTasks().size;
  nextTimes('0 0 * * 1', 'UTC', '2030-01-01T00:00:00Z', 10);
  t.equal(cron.getTasks().size, before);
});
