/**
 * Whether an agent is paused, which means that it refuses new tasks. Two pauses exist beside each
 * other: that of an operator, which stays until `agent_resume` or a restart of the agent, as in
 * Triton; and that of a job which drains the server. The second belongs to its job: no other one
 * ends it, and a job that reboots or resets a server asks whether it still holds it. It is a lease,
 * because the job may be unable to reach the agent when it fails, and it outlives the agent,
 * because an agent that restarts while its server drains must not take new tasks. It ends when the
 * machine has booted. While the server is in fact rebooted or reset, an operator cannot end it:
 * whatever the agent took then would be lost. Pure; `pause-keeper.ts` does the rest.
 *
 *     open ──pause──▶ paused ──resume, restart──▶ open
 *     open ──begin-drain──▶ draining ──end-drain of its job, resume, its time is over, boot──▶ open
 *                             │ ▲ ▲
 *                             │ │ └──the change has failed, restart──┐
 *                             │ │                                   │
 *                             └─┼──begin-change of its job──▶ changing ──as draining, but resume──▶ open
 *                       pause ▼ │ restart      (its time begins again)
 *                           both ──end-drain of its job, its time is over──▶ paused ; ──resume──▶ open
 */
export interface Pause {
  byOperator: boolean;
  drain: Drain | undefined;
}

interface Drain {
  jobId: string;
  durationMs: number;
  /** By the clock of this process. */
  endsAt: number;
  /** The server is being rebooted or reset. */
  isChanging: boolean;
}

export type PauseEvent =
  | { type: 'pause' }
  /** A server has one job at a time, so another job's drain is over. */
  | { type: 'begin-drain'; jobId: string; durationMs: number }
  /** What the server was drained for begins, or has failed. */
  | { type: 'begin-change'; jobId: string }
  | { type: 'change-failed'; jobId: string }
  | { type: 'end-drain'; jobId: string }
  /** Ends both, if `changingJob` knows none. */
  | { type: 'resume' };

/** A drain for the next process. */
export interface KeptDrain {
  jobId: string;
  durationMs: number;
  /** By the clock of the machine, which may be set meanwhile. */
  endsAtWallTime: number;
  bootId: string;
}

export const OPEN: Pause = { byOperator: false, drain: undefined };

export function stepPause(pause: Pause, event: PauseEvent, now: number): Pause {
  switch (event.type) {
    case 'pause':
      return { ...pause, byOperator: true };
    case 'begin-drain':
      return { ...pause, drain: drainFrom(event, now) };
    case 'begin-change':
      if (pause.drain === undefined || !isDrainedAt(pause, event.jobId, now)) return pause;
      return { ...pause, drain: { ...drainFrom(pause.drain, now), isChanging: true } };
    case 'change-failed':
      if (pause.drain?.jobId !== event.jobId || !pause.drain.isChanging) return pause;
      return { ...pause, drain: { ...pause.drain, isChanging: false } };
    case 'end-drain':
      return pause.drain?.jobId === event.jobId ? { ...pause, drain: undefined } : pause;
    case 'resume':
      return changingJob(pause, now) === undefined ? OPEN : pause;
    default:
      return event satisfies never;
  }
}

const drainFrom = ({ jobId, durationMs }: Pick<Drain, 'jobId' | 'durationMs'>, now: number): Drain => ({
  jobId,
  durationMs,
  endsAt: now + durationMs,
  isChanging: false,
});

/** The job that reboots or resets the server at present. */
export const changingJob = ({ drain }: Pause, now: number): string | undefined =>
  drain?.isChanging && now < drain.endsAt ? drain.jobId : undefined;

export const isPausedAt = (pause: Pause, now: number): boolean => reasonPausedAt(pause, now) !== undefined;

/** Who holds the pause, and how it ends; undefined: the agent is not paused. */
export function reasonPausedAt({ byOperator, drain }: Pause, now: number): string | undefined {
  if (drain !== undefined && now < drain.endsAt)
    return `workflow job ${drain.jobId} drains its server. Wait for the end of that job, or cancel it: cnapi workflow cancel ${drain.jobId}`;
  return byOperator ? 'an operator has paused it. To end that pause: cnapi server resume' : undefined;
}

/** Whether the server drains for this job. */
export const isDrainedAt = ({ drain }: Pause, jobId: string, now: number): boolean =>
  drain?.jobId === jobId && now < drain.endsAt;

/**
 * The pause of a process whose predecessor has kept this; a drain has never more time left than it
 * had.
 */
export function pauseAfter(
  { jobId, durationMs, ...kept }: KeptDrain,
  { bootId, wallTime, now }: { bootId: string; wallTime: number; now: number },
): Pause {
  const leftMs = kept.bootId === bootId ? Math.min(kept.endsAtWallTime - wallTime, durationMs) : 0;
  return leftMs <= 0 ? OPEN : { ...OPEN, drain: { jobId, durationMs, endsAt: now + leftMs, isChanging: false } };
}
