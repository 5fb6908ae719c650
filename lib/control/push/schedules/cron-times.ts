/**
 * The times of a cron expression in a time zone. Pure. node-cron reads and checks the expression.
 * The search is done here: that of node-cron begins at the time of the process's clock, and takes
 * up to a quarter of a second for days that are rare.
 *
 * The syntax is that of Kubernetes and Nomad: five fields or a name such as `@daily`. If neither
 * the day of the month nor the day of the week begins with `*`, a day matches that matches either.
 * A local time that the clocks skip in spring is left out, and one that they repeat in autumn comes
 * twice.
 */
import cron from 'node-cron';
import { MAX_CRON_CHARS } from '../../../protocol/api/push/schedules.ts';
import { type DaysOfMonth, parseCronDays } from './cron-days.ts';

/** Milliseconds since 1970. */
type Instant = number;

export interface CronTimes {
  /** The first time after this one; undefined if there is none. */
  next(after: Instant): Instant | undefined;
}

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
/**
 * A 29 February that is a given weekday may be 40 years after the one before it, across a century
 * without one.
 */
export const SEARCH_YEARS = 41;

/** Names of expressions. node-cron knows some others for the same times. */
const NAMES = ['@hourly', '@daily', '@weekly', '@monthly', '@yearly'];

/** What is wrong with the expression; undefined: it can be given to `cronTimes`. */
export function reasonNotCron(expression: string): string | undefined {
  // Before node-cron reads it: it expands ranges of any size, and 0-99999999999 ends the process.
  if (expression.length > MAX_CRON_CHARS) return `value is longer than ${MAX_CRON_CHARS} characters`;
  if (/\d{3}/.test(expression)) return 'value has a number above 99';
  const fields = expression.trim().split(/\s+/);
  if (fields.length !== 5 && !expression.startsWith('@'))
    return `value has ${fields.length} fields instead of five: minute, hour, day of the month, month, day of the week`;
  const { valid, errors } = cron.validateDetailed(expression.trim());
  if (valid) return undefined;
  if (expression.startsWith('@')) return `value is not one of the names ${NAMES.join(', ')}`;
  return `value is not a cron expression: ${errors[0]?.message.replace('is a invalid', 'is an invalid') ?? 'it cannot be read'}`;
}

export function isTimeZone(name: string): boolean {
  try {
    return Boolean(new Intl.DateTimeFormat('en-US', { timeZone: name }));
  } catch {
    return false;
  }
}

/** @throws for an expression or a time zone that is not valid */
export function cronTimes(expression: string, timeZone: string): CronTimes {
  const fields = localTimesOf(expression.trim());
  const offsetAt = offsetsOf(timeZone);
  return { next: (after) => search(after, fields, offsetAt) };
}

/** The local times of an expression: what a clock shows, as if it were UTC. */
interface LocalTimes {
  /** Minutes of the day, in ascending order. */
  minutes: readonly number[];
  months: ReadonlySet<number>;
  days: DaysOfMonth;
}

/** Local time minus UTC, in whole minutes. */
type Offset = (at: Instant) => number;

/**
 * Searches in steps of field to field. Each round looks at one piece of time in which the clocks do
 * not change; a local time beyond it says how far the next round may skip. No clock is ever changed
 * by more than a day.
 */
function search(after: Instant, times: LocalTimes, offsetAt: Offset): Instant | undefined {
  const last = after + SEARCH_YEARS * 366 * DAY_MS;
  for (let at = (Math.floor(after / MINUTE_MS) + 1) * MINUTE_MS; at <= last; ) {
    const offset = offsetAt(at);
    const local = nextLocalTime(at + offset, times);
    if (local === undefined) return undefined;
    const found = local - offset;
    const end = changeWithinADay(at, offsetAt) ?? at + DAY_MS;
    if (found < end) return found;
    at = Math.max(end, found - DAY_MS);
  }
  return undefined;
}

/** The first minute of the coming day at which the clocks show another offset than at `from`. */
function changeWithinADay(from: Instant, offsetAt: Offset): Instant | undefined {
  const offset = offsetAt(from);
  let [before, at] = [from, from + DAY_MS];
  if (offsetAt(at) === offset) return undefined;
  while (at - before > MINUTE_MS) {
    const middle = before + Math.floor((at - before) / 2 / MINUTE_MS) * MINUTE_MS;
    if (offsetAt(middle) === offset) before = middle;
    else at = middle;
  }
  return at;
}

/** The first local time that is not before `from`. */
function nextLocalTime(from: Instant, { minutes, months, days }: LocalTimes): Instant | undefined {
  const start = new Date(from);
  const [year, today] = [start.getUTCFullYear(), Math.floor(from / DAY_MS) * DAY_MS];
  for (let month = start.getUTCMonth() + 1; month <= (SEARCH_YEARS + 1) * 12; month += 1) {
    const [ofYear, ofMonth] = [year + Math.floor((month - 1) / 12), ((month - 1) % 12) + 1];
    if (!months.has(ofMonth)) continue;
    for (const day of days(ofYear, ofMonth)) {
      const midnight = Date.UTC(ofYear, ofMonth - 1, day);
      if (midnight < today) continue;
      const minute = minutes.find((one) => midnight + one * MINUTE_MS >= from);
      if (minute !== undefined) return midnight + minute * MINUTE_MS;
    }
  }
  return undefined;
}

function localTimesOf(pattern: string): LocalTimes {
  const { minute, hour, month, dayOfMonth, dayOfWeek } = cron.parse(pattern);
  // Ranges may be repeated.
  const ofHour = [...new Set(minute)];
  const minutes = [...new Set(hour)].flatMap((one) => ofHour.map((other) => one * 60 + other));
  return {
    minutes: minutes.sort((a, b) => a - b),
    months: new Set(month),
    days: parseCronDays({ dayOfMonth, dayOfWeek, isEither: isEitherEnough(pattern) }),
  };
}

/** Whether a day of the month or a weekday is enough. */
function isEitherEnough(pattern: string): boolean {
  const [, , day = '*', , weekday = '*'] = pattern.split(/\s+/);
  return !/^[*?]/.test(day) && !/^[*?]/.test(weekday);
}

function offsetsOf(timeZone: string): Offset {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    ...({ year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric' } as const),
  });
  return (at) => {
    // Such as 3/17/2030, 18:46. `formatToParts` takes 17 times as long.
    const [month = 0, day, year = 0, hour, minute] = (format.format(at).match(/\d+/g) ?? []).map(Number);
    return Date.UTC(year, month - 1, day, hour, minute) - Math.floor(at / MINUTE_MS) * MINUTE_MS;
  };
}
