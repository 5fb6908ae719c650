/**
 * The times of a cron expression in a time zone. Pure. node-cron reads the expression and says which
 * days match; its own search for the next time begins at the time of the process's clock, so that
 * search is done here.
 *
 * As in Kubernetes and Nomad: five fields or a name such as `@daily`. If neither the day of the month
 * nor the day of the week begins with `*`, a day matches that matches either. A local time that the
 * clocks skip in spring is left out, and one that they repeat in autumn comes twice.
 */
import cron from 'node-cron';

/** Milliseconds since 1970. */
type Instant = number;

export interface Times {
  /** The first time after this one; undefined if there is none. */
  next(after: Instant): Instant | undefined;
}

export const MAX_CRON_CHARS = 200;
const MINUTE_MS = 60_000;
/** Time zones differ from UTC by multiples of this, also after each change of their clocks. */
const SLOT_MS = 15 * MINUTE_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** 29 February is 8 years after the one before it, where a century has none. */
const SEARCH_MS = (8 * 366 + 31) * DAY_MS;

/** What is wrong with the expression; undefined: it can be given to `cronTimes`. */
export function complaintOfCron(expression: string): string | undefined {
  // Before node-cron reads it: that expands ranges of any size, and 0-99999999999 ends the process.
  if (expression.length > MAX_CRON_CHARS) return `value is longer than ${MAX_CRON_CHARS} characters`;
  if (/\d{3}/.test(expression)) return 'value has a number above 99';
  const fields = expression.trim().split(/\s+/);
  if (fields.length !== 5 && !expression.startsWith('@'))
    return `value has ${fields.length} fields instead of five: minute, hour, day of the month, month, day of the week`;
  const { valid, errors } = cron.validateDetailed(expression.trim());
  return valid ? undefined : `value is no cron expression: ${errors[0]?.message ?? 'it cannot be read'}`;
}

export function isTimeZone(name: string): boolean {
  try {
    return Boolean(new Intl.DateTimeFormat('en-US', { timeZone: name }));
  } catch {
    return false;
  }
}

/** @throws for an expression or a time zone that is not valid */
export function cronTimes(expression: string, timeZone: string): Times {
  const pattern = expression.trim();
  const { minute, hour, month } = cron.parse(pattern);
  const days = dayPatternsOf(pattern);
  const localTime = localClock(timeZone);
  return { next: (after) => search(after, { minute, hour, month, isDay: dayMatcher(days), localTime }) };
}

interface LocalTime {
  year: number;
  /** 1 to 12. */
  month: number;
  day: number;
  hour: number;
  minute: number;
  /** Local time minus UTC. */
  offsetMs: number;
}

interface Search {
  minute: readonly number[];
  hour: readonly number[];
  month: readonly number[];
  isDay(year: number, month: number, day: number): boolean;
  localTime(at: Instant): LocalTime;
}

function search(after: Instant, { minute, hour, month, isDay, localTime }: Search): Instant | undefined {
  const end = after + SEARCH_MS;
  let at = (Math.floor(after / MINUTE_MS) + 1) * MINUTE_MS;
  while (at < end) {
    const local = localTime(at);
    const slotEnd = (Math.floor(at / SLOT_MS) + 1) * SLOT_MS;
    // Some hours earlier than it seems: the clocks may change meanwhile.
    const skipTo = (year: number, ofMonth: number, day: number) =>
      Math.max(slotEnd, floorSlot(Date.UTC(year, ofMonth - 1, day) - local.offsetMs - 3 * HOUR_MS));
    if (!month.includes(local.month)) at = skipTo(local.year, local.month + 1, 1);
    else if (!isDay(local.year, local.month, local.day)) at = skipTo(local.year, local.month, local.day + 1);
    else {
      if (hour.includes(local.hour))
        for (let one = local.minute; at < slotEnd; one += 1, at += MINUTE_MS) if (minute.includes(one)) return at;
      at = slotEnd;
    }
  }
  return undefined;
}

const floorSlot = (at: Instant): Instant => Math.floor(at / SLOT_MS) * SLOT_MS;

/** One for the day of the month and one for the day of the week if either is enough. */
function dayPatternsOf(pattern: string): string[] {
  if (pattern.startsWith('@')) return [pattern];
  const [, , day = '*', month = '*', weekday = '*'] = pattern.split(/\s+/);
  const isAny = (field: string) => /^[*?]/.test(field);
  if (isAny(day) || isAny(weekday)) return [`* * ${day} ${month} ${weekday}`];
  return [`* * ${day} ${month} *`, `* * * ${month} ${weekday}`];
}

function dayMatcher(patterns: readonly string[]): Search['isDay'] {
  let asked: Instant | undefined;
  let answer = false;
  return (year, month, day) => {
    const midnight = Date.UTC(year, month - 1, day);
    if (midnight !== asked) answer = patterns.some((pattern) => matches(pattern, midnight));
    asked = midnight;
    return answer;
  };
}

/** node-cron keeps each task in a list until it is destroyed. */
function matches(pattern: string, midnight: Instant): boolean {
  const task = cron.createTask(pattern, () => undefined, { timezone: 'UTC' });
  try {
    return task.match(new Date(midnight));
  } finally {
    void task.destroy();
  }
}

function localClock(timeZone: string): Search['localTime'] {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    ...({ year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric' } as const),
  });
  return (at) => {
    const parts = new Map(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
    const of = (type: Intl.DateTimeFormatPartTypes) => parts.get(type) ?? 0;
    const [year, month, day, hour, minute] = [of('year'), of('month'), of('day'), of('hour'), of('minute')];
    const local = Date.UTC(year, month - 1, day, hour, minute);
    return { year, month, day, hour, minute, offsetMs: local - Math.floor(at / MINUTE_MS) * MINUTE_MS };
  };
}
