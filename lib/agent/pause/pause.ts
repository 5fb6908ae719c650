/**
 * Whether an agent is paused, which means that it refuses new tasks. Two pauses exist beside each
 * other: that of an operator, which stays until `agent_resume` or a restart of the agent, as in
 * Triton; and that of a job which drains the server. The second belongs to its job: no other one
 * ends it, and a job that reboots or resets a server asks whether it still holds it. It is a lease,
 * because the job may be unable to reach the agent when it fails, and it outlives the agent,
 * because an agent that restarts while its server drains must not take new tasks. It ends when the
 * machine has booted. Pure; `pause-keeper.ts` does the rest.
 *
 *     open ──pause──▶ paused ──resume, restart──▶ open
 *     open ──begin-drain──▶ draining ──end-drain of its job, resume, its time is over, boot──▶ open
 *                             │ ▲ └──renew-drain of its job: its time begins again──▶ draining
 *                       pause ▼ │ restart
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
}

export type PauseEvent =
  | { type: 'pause' }
  /** A server has one job at a time, so another job's drain is over. */
  | { type: 'begin-drain'; jobId: string; durationMs: number }
  | { type: 'renew-drain'; jobId: string }
  | { type: 'end-drain'; jobId: string }
  /** Ends both. */
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
      return { ...pause, drain: { jobId: event.jobId, durationMs: event.durationMs, endsAt: now + event.durationMs } };
    case 'renew-drain':
      if (pause.drain === undefined || !isDrainedAt(pause, event.jobId, now)) return pause;
      return { ...pause, drain: { ...pause.drain, endsAt: now + pause.drain.durationMs } };
    case 'end-drain':
      return pause.drain?.jobId === event.jobId ? { ...pause, drain: undefined } : pause;
    case 'resume':
      return OPEN;
    default:
      return event satisfies never;
  }
}

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
  return leftMs <= 0 ? OPEN : { ...OPEN, drain: { jobId, durationMs, endsAt: now + leftMs } };
}
