/**
 * The days of a month that a cron expression names, from its fields as node-cron reads them. Pure.
 *
 * Which days these are depends on the month's length and on the weekday of its first day alone, so
 * they are found once for each of these 28 kinds of month.
 */

/** A number, or a text such as `L`, `L-3`, `15W` or, for a weekday, `5L` or `5#2`. */
type DayField = readonly (number | string)[];

interface DayFields {
  dayOfMonth: DayField;
  dayOfWeek: DayField;
  /** A day that is in one of the fields is enough; otherwise it must be in both. */
  isEither: boolean;
}

interface MonthKind {
  length: number;
  /** The weekday of the first day; 0 is Sunday. */
  first: number;
}

/** Returns days of the month in ascending order. Days and months count from 1. */
export type DaysOfMonth = (year: number, month: number) => readonly number[];

export function parseCronDays(fields: DayFields): DaysOfMonth {
  const known = new Map<number, readonly number[]>();
  return (year, month) => {
    const length = new Date(Date.UTC(year, month, 0)).getUTCDate();
    const first = new Date(Date.UTC(year, month - 1, 1)).getUTCDay();
    const key = length * 7 + first;
    const days = known.get(key) ?? daysIn({ length, first }, fields);
    known.set(key, days);
    return days;
  };
}

function daysIn(month: MonthKind, { dayOfMonth, dayOfWeek, isEither }: DayFields): number[] {
  const byDay = new Set(dayOfMonth.map((token) => dayNamed(token, month)));
  const byWeekday = new Set(dayOfWeek.flatMap((token) => daysOfWeekday(token, month)));
  const all = Array.from({ length: month.length }, (_, index) => index + 1);
  return all.filter((day) => (isEither ? byDay.has(day) || byWeekday.has(day) : byDay.has(day) && byWeekday.has(day)));
}

/** Returns a day that no month has if this month does not have the named day. */
function dayNamed(token: number | string, month: MonthKind): number {
  if (typeof token === 'number') return token;
  if (token === 'L') return month.length;
  const [, beforeEnd] = /^L-(\d+)$/.exec(token) ?? [];
  if (beforeEnd !== undefined) return month.length - Number(beforeEnd);
  const [, near] = /^(\d+|L)W$/.exec(token) ?? [];
  if (near === undefined) return 0;
  return workingDayNear(near === 'L' ? month.length : Number(near), month);
}

/** The working day nearest to this day, in the same month. */
function workingDayNear(day: number, month: MonthKind): number {
  if (day < 1 || day > month.length) return 0;
  switch ((month.first + day - 1) % 7) {
    case 6:
      return day === 1 ? 3 : day - 1;
    case 0:
      return day === month.length ? day - 2 : day + 1;
    default:
      return day;
  }
}

function daysOfWeekday(token: number | string, { length, first }: MonthKind): number[] {
  const [, name, nth, last] = /^([0-7])(?:#([1-5])|(L))?$/.exec(String(token)) ?? [];
  if (name === undefined) return [];
  const days: number[] = [];
  for (let day = 1 + ((Number(name) - first + 7) % 7); day <= length; day += 7) days.push(day);
  if (nth !== undefined) return days.slice(Number(nth) - 1, Number(nth));
  return last === undefined ? days : days.slice(-1);
}
