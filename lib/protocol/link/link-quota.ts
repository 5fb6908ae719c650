/**
 * What one peer of the agent link may send: a burst, then a steady rate. Input above the rate is
 * read later, so that a flood of one peer does not delay the others (invariant I7). Pure. Both ends
 * use it: an agent for its connection, an instance for each sender.
 *
 * Bytes, frames and JSON values are converted to one unit, the byte, because each of them costs
 * work: seven million pongs are only 42 MB, and a megabyte of members takes as long to parse as
 * thirty of text.
 */
import { RateLimit } from '../../platform/limiting/rate-limiter.ts';

/** Four frames of the largest size in one burst. */
export const BURST_BYTES = 32 * 1024 * 1024;
export const BYTES_PER_MS = 16 * 1024;
export const LINK_RATE = new RateLimit({ perSecond: 1000 * BYTES_PER_MS, burst: BURST_BYTES });
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

/** The cost of one read in which `frames` frames began. */
export function costOfRead(bytes: number, frames: number): number {
  return Math.max(bytes, READ_BYTES) + frames * FRAME_BYTES;
}
