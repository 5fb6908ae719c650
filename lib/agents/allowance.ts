/**
 * How much one peer may send: a bucket of bytes that refills steadily. What goes beyond it is read later, so that no
 * agent's flood keeps the others waiting (invariant I7). Pure; changes in place because it runs for each frame.
 */
export interface Allowance {
  /** Bytes left; below zero after a frame that was larger than what was left. */
  left: number;
  /** The caller's monotonic clock when `left` was reckoned. */
  at: number;
}

/** Four of the largest frames at once. */
export const BURST_BYTES = 32 * 1024 * 1024;
export const BYTES_PER_MS = 16 * 1024;
/** What the smallest frame counts for: dealing with it costs as much, however short it is. */
export const FRAME_BYTES = 2 * 1024;

export const newAllowance = (now: number): Allowance => ({ left: BURST_BYTES, at: now });

/** Takes a frame of `bytes`; returns for how many milliseconds no more is to be read. */
export function takeBytes(allowance: Allowance, bytes: number, now: number): number {
  const refilled = Math.min(BURST_BYTES, allowance.left + (now - allowance.at) * BYTES_PER_MS);
  allowance.left = refilled - Math.max(bytes, FRAME_BYTES);
  allowance.at = now;
  return allowance.left >= 0 ? 0 : Math.ceil(-allowance.left / BYTES_PER_MS);
}
