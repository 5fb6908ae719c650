/**
 * How long a peer has been quiet, counted in this process's own healthy ticks: a late tick counts nothing, so a stalled
 * or thawed observer never mistakes its own absence for the peer's (law 4). Pure; fields change in place because this runs
 * for every session on every tick.
 *
 *     hearing ──quiet for probeMs──▶ probed ──quiet for silenceMs──▶ silent      any byte ──▶ hearing
 */
export interface Silence {
  quietMs: number;
  isProbed: boolean;
}

export interface SilenceLimits {
  probeMs: number;
  silenceMs: number;
}

/** A byte came. */
export function hear(silence: Silence): void {
  silence.quietMs = 0;
  silence.isProbed = false;
}

/** A healthy tick of `tickMs` passed without a byte; says what is due now, each edge once. */
export function countTick(silence: Silence, tickMs: number, limits: SilenceLimits): 'nothing' | 'probe' | 'silent' {
  silence.quietMs += tickMs;
  // The last byte may have come at the very end of the first tick that is counted.
  if (silence.quietMs - tickMs >= limits.silenceMs) return 'silent';
  if (silence.isProbed || silence.quietMs < limits.probeMs) return 'nothing';
  silence.isProbed = true;
  return 'probe';
}
