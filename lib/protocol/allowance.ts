/**
 * A rate limit for what one peer of the agent link sends: a burst, then a steady rate. Input above
 * the rate is read later, so that a flood of one peer does not delay the others (invariant I7).
 * Pure. Both ends use it: an agent for its connection, an instance for each sender.
 *
 * Bytes, frames and JSON values are converted to one unit, the byte, because each of them costs
 * work: seven million pongs are only 42 MB, and a megabyte of members takes as long to parse as
 * thirty of text. The only state per peer is one time: when everything it has sent so far is paid for
 * at the steady rate, on the reader's monotonic clock. If that time is in the past, the peer owes
 * nothing.
 */

/** Four frames of the largest size at once. */
export const BURST_BYTES = 32 * 1024 * 1024;
export const BYTES_PER_MS = 16 * 1024;
/** The cost of a frame in addition to its bytes; control frames and fragments count too. */
export const FRAME_BYTES = 8 * 1024;
/** The minimum cost of one read from the socket. */
const READ_BYTES = 4 * 1024;
/**
 * The cost of a JSON value in addition to its bytes, in bytes of text. Measured on Node 24 over
 * decode, count, `JSON.parse` and `JSON.stringify`: a byte of text takes 3 to 9 ns, an element of
 * an array 50 to 90 ns, a value of an object with few members 200 ns, and each name and value of an
 * object with 119,000 members 440 ns. Each value costs as much as the most expensive kind (140
 * bytes of the cheapest text), doubled for memory, checks and database work.
 */
export const VALUE_BYTES = 256;

export const BURST_MS = BURST_BYTES / BYTES_PER_MS;

/** The cost of one read in which `frames` frames began. */
export function costOfRead(bytes: number, frames: number): number {
  return Math.max(bytes, READ_BYTES) + frames * FRAME_BYTES;
}

/** The time at which everything is paid for, including this cost. */
export function consume(cost: number, paidAt: number, now: number): number {
  return Math.max(paidAt, now) + cost / BYTES_PER_MS;
}

/** For how many milliseconds the peer must not be read. */
export function pauseMsOf(paidAt: number, now: number): number {
  return Math.max(0, Math.ceil(paidAt - now - BURST_MS));
}
