/** When cron expressions come next, in time zones whose clocks change. */
import cron from 'node-cron';
import t, { type Test } from 'tap';
import { cronTimes, isTimeZone, reasonNotCron } from '../../../../lib/control/push/schedules/cron-times.ts';
import { SeededRandom } from '../../../sim/seeded-random.ts';

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

t.test('what is not a cron expression is refused, without reading it at any size', async (t) => {
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
    t.type(reasonNotCron(expression), 'string', expression.slice(0, 40));
  for (const expression of ['* * * * *', '@hourly', ' 0 0 * * 7 ', '*/15 1,2 1-5 JAN mon#1'])
    t.equal(reasonNotCron(expression), undefined);
});

t.test('a time zone is one that the runtime knows', async (t) => {
  t.same(['UTC', 'Europe/Berlin', 'Mars/Olympus', ''].map(isTimeZone), [true, true, false, false]);
});

/** How often the local time of an instant is asked for. */
function countLookups(t: Test): () => number {
  const inherited = Object.getOwnPropertyDescriptor(Intl.DateTimeFormat.prototype, 'format');
  let count = 0;
  Object.defineProperty(Intl.DateTimeFormat.prototype, 'format', {
    configurable: true,
    get() {
      count += 1;
      return inherited?.get?.call(this);
    },
  });
  t.teardown(() => Object.defineProperty(Intl.DateTimeFormat.prototype, 'format', inherited ?? {}));
  return () => count;
}

t.test('expressions whose times are rare, or never come, take few steps', async (t) => {
  const lookups = countLookups(t);
  const after = Date.parse('2096-03-01T00:00:00Z');
  for (const [expression, next] of [
    ['0 0 31W 2 *', undefined],
    ['0 0 L-30 2 *', undefined],
    ['30 2 * 3 0L', undefined],
    ['0 0 29 2 *', '2104-02-28T23:00:00.000Z'],
    ['0 0 * 2 mon#5', '2112-02-28T23:00:00.000Z'],
  ] as const) {
    const before = lookups();
    const found = cronTimes(expression, 'Europe/Berlin').next(after);
    t.equal(found && new Date(found).toISOString(), next, expression);
    t.ok(lookups() - before < 1_000, `${expression}: ${lookups() - before} lookups`);
  }
});

const ZONES = [
  ...['UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kolkata', 'America/Havana'],
  ...['Asia/Beirut', 'Africa/Casablanca', 'America/Santiago', 'Pacific/Chatham', 'Antarctica/Troll'],
];

const DAYS = ['*', '?', '1', '15', '29', '31', 'L', 'L-2', 'LW', '15W', '1W', '31W', '*/7', '28-31', '1,15,L', '30-2'];
const WEEKDAYS = ['*', '?', '0', '7', 'mon', 'mon-fri', '0L', 'fri#5', 'tue#1', '*/2', '5-1', '1,3,fri', 'sat#2,2L'];
const MONTHS = ['*', '*', '2', 'mar', '3,10', '*/3', '10-12', 'nov-apr', '4,6,9,11'];

/** The documented rule: either day is enough unless one of them begins with `*`. */
function patternsOf([minute, hour, day = '*', month, weekday = '*']: readonly (string | undefined)[]): string[] {
  const head = `${minute} ${hour}`;
  if (/^[*?]/.test(day) || /^[*?]/.test(weekday)) return [`${head} ${day} ${month} ${weekday}`];
  return [`${head} ${day} ${month} *`, `${head} * ${month} ${weekday}`];
}

/** Node-cron is asked about each of these times. */
async function matching(patterns: readonly string[], timezone: string, times: readonly number[]): Promise<number[]> {
  const tasks = patterns.map((pattern) => cron.createTask(pattern, () => undefined, { timezone }));
  const found = times.filter((at) => tasks.some((task) => task.match(new Date(at))));
  for (const task of tasks) await task.destroy();
  return found;
}

function timesBetween(expression: string, zone: string, from: number, to: number): number[] {
  const times = cronTimes(expression, zone);
  const found: number[] = [];
  for (let at = times.next(from - 1); at !== undefined && at < to; at = times.next(at)) found.push(at);
  return found;
}

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
const random = new SeededRandom('cron times');

t.test('random expressions have the times of node-cron, minute by minute, when clocks change', async (t) => {
  for (let round = 0; round < 40; round += 1) {
    const zone = random.pick(ZONES);
    const minute = random.pick(['0', '*/15', '30', '5,35', '59', '50-10/5', '*/20']);
    const hour = random.pick(['*', '0', '1-3', '*/2', '23', '22-2', '2', '0-4/2']);
    const fields = [minute, hour, random.pick(['*', '*', ...DAYS]), '*', random.pick(['*', '*', ...WEEKDAYS])];
    const from = random.pick(changesOf(zone)) - DAY_MS / 2 + random.whole(0, 600) * MINUTE_MS;
    const minutes = Array.from({ length: 1_440 }, (_, index) => from + index * MINUTE_MS);
    const expression = fields.join(' ');
    const expected = await matching(patternsOf(fields), zone, minutes);
    const about = `${expression} in ${zone} from ${new Date(from).toISOString()}`;
    t.same(timesBetween(expression, zone, from, from + DAY_MS), expected, about);
  }
});

t.test('random expressions name the days of node-cron', async (t) => {
  for (let round = 0; round < 40; round += 1) {
    const fields = ['0', '0', random.pick(DAYS), random.pick(MONTHS), random.pick(WEEKDAYS)];
    const expression = fields.join(' ');
    if (reasonNotCron(expression) !== undefined) continue;
    const from = Date.UTC(random.pick([2027, 2030, 2098]), 0, 1);
    const midnights = Array.from({ length: 1_100 }, (_, index) => from + index * DAY_MS);
    const expected = await matching(patternsOf(fields), 'UTC', midnights);
    t.same(timesBetween(expression, 'UTC', from, from + 1_100 * DAY_MS), expected, expression);
  }
});

/** Some instants at which the zone's clocks change, to the hour; any instant if they never do. */
function changesOf(zone: string): number[] {
  const format = new Intl.DateTimeFormat('en-US', { timeZone: zone, timeZoneName: 'longOffset' });
  const offsetAt = (at: number) => format.format(at).split(', ')[1];
  const found: number[] = [];
  const end = Date.UTC(2032, 0, 1);
  for (let at = Date.UTC(2030, 0, 1); at < end; at += DAY_MS / 24)
    if (offsetAt(at) !== offsetAt(at + DAY_MS / 24)) found.push(at);
  return found.length > 0 ? found : [Date.UTC(2030, 1, 27)];
}
