/** The times of a schedule: as callers ask for them, and the next one. Pure. */
import { type FieldError, InvalidParametersError, invalidParameter } from '../../../platform/errors.ts';
import { cronTimes, isTimeZone, reasonNotCron, SEARCH_YEARS } from './cron-times.ts';
import type { WholeSchedule } from './schedule-change-store.ts';

export interface ScheduleTimes {
  /** A time in ISO 8601. */
  at: string | undefined;
  cron: string | undefined;
  timeZone: string | undefined;
}

const NO_TIME_ZONE = 'value is not the name of a time zone';

/**
 * @throws InvalidParametersError with all that is wrong, or when there is no such time after `now`
 */
export function parseScheduleTimes({ at: text, cron, timeZone = 'UTC' }: ScheduleTimes, now: number) {
  const errors: FieldError[] = [];
  const refuse = (field: string, message: string) => errors.push({ field, code: 'Invalid', message });
  const at = text === undefined ? undefined : Date.parse(text);
  if ((at === undefined) === (cron === undefined)) refuse('at', 'give either at or cron, and not both');
  else if (at !== undefined && at <= now) refuse('at', 'value is not in the future');
  const issue = cron === undefined ? undefined : reasonNotCron(cron);
  if (issue !== undefined) refuse('cron', issue);
  if (!isTimeZone(timeZone)) refuse('time_zone', NO_TIME_ZONE);
  if (errors.length > 0) throw new InvalidParametersError(400, errors);
  const nextAt = nextTime({ at, cron, timeZone }, now);
  if (nextAt === undefined)
    throw invalidParameter(
      'cron',
      `value names no time of the next ${SEARCH_YEARS} years: check its day of the month, month and day of the week`,
    );
  return { at, cron, timeZone, nextAt };
}

export const timesIn = ({ at, cron, time_zone: timeZone }: WholeSchedule) => ({
  at: at?.getTime(),
  cron: cron ?? undefined,
  timeZone,
});

/**
 * The times of the schedule after the change. `nextAt` is set only if the times are others. @throws
 * InvalidParametersError
 */
export function changedTimes(schedule: WholeSchedule, { at: text, cron, timeZone }: ScheduleTimes, now: number) {
  const present = timesIn(schedule);
  const isOnce = text !== undefined || (cron === undefined && present.at !== undefined);
  const isSame =
    (text === undefined || Date.parse(text) === present.at) &&
    (cron === undefined || cron === present.cron) &&
    (timeZone === undefined || timeZone === present.timeZone);
  if (isSame) return { ...present, nextAt: undefined };
  // A time zone is not part of a single time.
  if (isOnce && text === undefined) {
    if (timeZone !== undefined && !isTimeZone(timeZone)) throw invalidParameter('time_zone', NO_TIME_ZONE);
    return { ...present, timeZone: timeZone ?? present.timeZone, nextAt: undefined };
  }
  const wanted = { at: text, cron: cron ?? (text === undefined ? present.cron : undefined) };
  return parseScheduleTimes({ ...wanted, timeZone: timeZone ?? present.timeZone }, now);
}

interface KnownTimes {
  at: number | undefined;
  cron: string | undefined;
  timeZone: string;
}

export function nextTime(times: KnownTimes, now: number): number | undefined {
  return nextTimes(times, now, 1)[0];
}

/** The next times, at most `count`. The expression and the time zone are read once. */
export function nextTimes({ at, cron, timeZone }: KnownTimes, now: number, count: number): number[] {
  if (cron === undefined) return at !== undefined && at > now ? [at] : [];
  const times = cronTimes(cron, timeZone);
  const found: number[] = [];
  while (found.length < count) {
    const next = times.next(found.at(-1) ?? now);
    if (next === undefined) break;
    found.push(next);
  }
  return found;
}
