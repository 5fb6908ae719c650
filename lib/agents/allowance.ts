/**
 * How much one peer may send: a burst, then at a steady pace. What goes beyond it is read later, so that no agent's flood
 * keeps the others waiting (invariant I7). Pure. All that is kept of a peer is the moment at which what it sent is paid for
 * at that pace, by the caller's monotonic clock; one in the past owes nothing.
 */

/** Four of the largest frames at once. */
export const BURST_BYTES = 32 * 1024 * 1024;
export const BYTES_PER_MS = 16 * 1024;
/** What the smallest frame counts for: dealing with it costs as much, however short it is. */
export const FRAME_BYTES = 8 * 1024;

const BURST_MS = BURST_BYTES / BYTES_PER_MS;

/** When all is paid for, with a frame of `bytes` that came now. */
export function payFor(bytes: number, paidAt: number, now: number): number {
  return Math.max(paidAt, now) + Math.max(bytes, FRAME_BYTES) / BYTES_PER_MS;
}

/** For how many milliseconds no more is to be read. */
export function pauseMsOf(paidAt: number, now: number): number {
  return Math.max(0, Math.ceil(paidAt - now - BURST_MS));
}
