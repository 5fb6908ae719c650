/**
 * Whether an agent is paused, which means that it refuses new tasks. Two pauses exist beside each
 * other: that of an operator, which stays until `agent_resume` or a restart of the agent, as in
 * Triton; and one with a lease, of a job that drains the server. The lease ends by itself, because
 * the job may be unable to reach the agent when it fails, and it outlives the agent, because an
 * agent that restarts while its server drains must not take new tasks. It ends when the machine has
 * booted: that was the reason of the drain. Pure; `pause-keeper.ts` does the rest.
 *
 *     open ──pause──▶ paused ──resume, restart──▶ open
 *     open ──lease──▶ leased ──end-lease, resume, its time is over, boot──▶ open
 *                       │ ▲ └──lease: its time begins again──▶ leased
 *                 pause ▼ │ restart
 *                     both ──end-lease, its time is over──▶ paused ; ──resume──▶ open
 */
export interface Pause {
  byOperator: boolean;
  /** By the clock of this process; undefined without a lease. */
  leaseEndsAt: number | undefined;
}

export type PauseEvent =
  | { type: 'pause' }
  | { type: 'lease'; durationMs: number }
  | { type: 'end-lease' }
  /** Ends both. */
  | { type: 'resume' };

/** A lease for the next process. */
export interface KeptLease {
  durationMs: number;
  /** By the clock of the machine, which may be set meanwhile. */
  endsAtWallTime: number;
  bootId: string;
}

export const OPEN: Pause = { byOperator: false, leaseEndsAt: undefined };

export function stepPause(pause: Pause, event: PauseEvent, now: number): Pause {
  switch (event.type) {
    case 'pause':
      return { ...pause, byOperator: true };
    case 'lease':
      return { ...pause, leaseEndsAt: now + event.durationMs };
    case 'end-lease':
      return { ...pause, leaseEndsAt: undefined };
    case 'resume':
      return OPEN;
    default:
      return event satisfies never;
  }
}

export const isPausedAt = ({ byOperator, leaseEndsAt }: Pause, now: number): boolean =>
  byOperator || (leaseEndsAt !== undefined && now < leaseEndsAt);

/** What is left of the lease of a former process, in milliseconds; never more than it had. */
export function leftOf(kept: KeptLease, { bootId, wallTime }: { bootId: string; wallTime: number }): number {
  if (kept.bootId !== bootId) return 0;
  return Math.min(Math.max(kept.endsAtWallTime - wallTime, 0), kept.durationMs);
}
