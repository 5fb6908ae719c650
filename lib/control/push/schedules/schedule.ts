/**
 * A schedule: push jobs that are created at a time, or at the times of a cron expression. Pure;
 * driven by `scheduler.ts`.
 *
 *     created ──▶ active ──its last time is used up──▶ ended
 *                  │  ▲
 *                  └──┴─ paused: a time that waits, and times that pass meanwhile, are left out
 *
 * Each time is used up once, under the lock of the schedule's row: a job is started, or the time is
 * skipped (the last job has not ended), missed (no instance was there in time, or there was no room
 * for its job) or refused (the job cannot be created).
 */
import type { FIRING_OUTCOMES, OVERLAPS, SCHEDULE_STATUSES } from '../../../protocol/api/push/schedules.ts';
import type { CronTimes } from './cron-times.ts';

/** What happens at a time when the last job has not ended. */
export type Overlap = (typeof OVERLAPS)[number];

export type FiringOutcome = (typeof FIRING_OUTCOMES)[number];

/** A time that no instance has used within this period is missed. */
export const CATCH_UP_MS = 3_600_000;

export interface ScheduleState {
  overlap: Overlap;
  nextAt: number | undefined;
  /** The time that waits for the end of the last job. `overlap` may have changed since. */
  queuedAt: number | undefined;
  /** The last job has not ended. */
  isBusy: boolean;
}

/** `at`: the time that is used up; `thenAt`: the next one. */
export type Firing =
  | { do: 'wait' }
  | { do: 'start'; at: number; thenAt: number | undefined }
  | { do: 'queue'; at: number; thenAt: number | undefined }
  | { do: 'pass'; outcome: Exclude<FiringOutcome, 'started'>; reason: string; at: number; thenAt: number | undefined };

/**
 * What becomes of a schedule at a time. Of several times that have passed, for example while all
 * instances were down, only the last one counts. `times`: of its cron expression, if it has one.
 */
export function decideFiring(schedule: ScheduleState, times: CronTimes | undefined, now: number): Firing {
  const { overlap, nextAt, queuedAt, isBusy } = schedule;
  if (queuedAt !== undefined && (overlap === 'allow' || !isBusy)) return { do: 'start', at: queuedAt, thenAt: nextAt };
  if (nextAt === undefined || nextAt > now) return { do: 'wait' };
  const { at, thenAt } = lastTime(nextAt, times, now);
  if (at < now - CATCH_UP_MS) {
    const reason = `no job could be started within ${CATCH_UP_MS / 60_000} minutes of its time`;
    return { do: 'pass', outcome: 'missed', reason, at, thenAt };
  }
  if (overlap === 'allow' || !isBusy) return { do: 'start', at, thenAt };
  if (overlap === 'queue' && queuedAt === undefined) return { do: 'queue', at, thenAt };
  const reason = `its last job had not ended${overlap === 'queue' ? ', and one time waits for that already' : ''}`;
  return { do: 'pass', outcome: 'skipped', reason, at, thenAt };
}

/** The last time up to now, and the one after it. */
function lastTime(nextAt: number, times: CronTimes | undefined, now: number) {
  let at = nextAt;
  // After a long time without an instance: not through all times since then.
  if (at < now - CATCH_UP_MS) {
    const recent = times?.next(now - CATCH_UP_MS - 1);
    if (recent !== undefined && recent <= now) at = recent;
    else return { at, thenAt: recent };
  }
  for (;;) {
    const thenAt = times?.next(at);
    if (thenAt === undefined || thenAt > now) return { at, thenAt };
    at = thenAt;
  }
}

export type ScheduleStatus = (typeof SCHEDULE_STATUSES)[number];

export function toScheduleStatus(isPaused: boolean, nextAt: unknown, queuedAt: unknown): ScheduleStatus {
  if (nextAt === null && queuedAt === null) return 'ended';
  return isPaused ? 'paused' : 'active';
}
