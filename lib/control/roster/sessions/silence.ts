/**
 * How long a peer has been quiet, counted in this process's own healthy ticks. A late tick counts
 * nothing, so an observer that stalled or was suspended never takes its own pause for the peer's
 * silence (law 4). Pure; the fields change in place because this runs for every session at every
 * tick.
 *
 *     talking ──quiet for probeMs──▶ probed ──quiet for silenceMs──▶ silent
 *     talking, probed ──any byte──▶ talking
 */
export interface PeerSilence {
  quietMs: number;
  isProbed: boolean;
}

export interface SilenceLimits {
  probeMs: number;
  silenceMs: number;
}

/** A byte arrived. */
export function endSilence(silence: PeerSilence): void {
  silence.quietMs = 0;
  silence.isProbed = false;
}

/** A healthy tick of `tickMs` passed without a byte. Returns what is due now, each once. */
export function countTick(silence: PeerSilence, tickMs: number, limits: SilenceLimits): 'nothing' | 'probe' | 'silent' {
  silence.quietMs += tickMs;
  // The last byte may have arrived at the very end of the first counted tick.
  if (silence.quietMs - tickMs >= limits.silenceMs) return 'silent';
  if (silence.isProbed || silence.quietMs < limits.probeMs) return 'nothing';
  silence.isProbed = true;
  return 'probe';
}

/**
 * Whether no byte has arrived for probeMs, whatever the phase of the ticks. A session is probed up
 * to one tick earlier: a heartbeat that comes a moment after a tick instead of before it is counted
 * as five ticks of 250 ms, although it is on time.
 */
export function isOverdue({ quietMs }: PeerSilence, tickMs: number, { probeMs }: SilenceLimits): boolean {
  return quietMs - tickMs >= probeMs;
}
