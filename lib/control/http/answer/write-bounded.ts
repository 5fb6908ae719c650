/**
 * Sends content in slices, each with a time limit, and disconnects a caller that reads too slowly.
 * Otherwise such a caller would hold the memory of its answer for ever.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock, Timer } from '../../../platform/time/clock.ts';

/** A caller that takes less than a slice in this time is cut off: 2 KiB per second. */
export const SLOW_READER_MS = 30_000;
const SLICE_BYTES = 64 * 1024;

/**
 * Writes all of `content`; false if the caller has disconnected or was too slow. An instance that
 * stops lets it finish: nothing but the end of the connection interrupts it.
 */
export async function writeInSlices(response: ServerResponse, content: Buffer, clock: Clock): Promise<boolean> {
  for (let at = 0; at < content.length; at += SLICE_BYTES) {
    if (response.destroyed) return false;
    const isTaken = response.write(content.subarray(at, at + SLICE_BYTES));
    if (!isTaken && !(await untilDrained(response, SLOW_READER_MS, { clock }))) return false;
  }
  return true;
}

/**
 * Ends an incomplete answer by cutting off its connection, once the answers before it are sent:
 * behind it no other answer can follow.
 */
export function cutOff(response: ServerResponse): void {
  response.once('socket', (socket: Socket) => socket.destroy());
  response.destroy();
}

/**
 * Resolves with true once the reader has caught up; with false if it is too slow, if it has
 * disconnected, or when `signal` aborts. The time begins with the turn of the response on its
 * connection.
 */
export function untilDrained(
  response: ServerResponse,
  withinMs: number,
  { clock, signal }: { clock: Clock; signal?: AbortSignal },
): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (isDrained: boolean) => {
      timer?.cancel();
      response.off('socket', start);
      response.off('drain', onDrain);
      response.off('close', onGone);
      signal?.removeEventListener('abort', onGone);
      resolve(isDrained);
    };
    const onDrain = () => settle(true);
    const onGone = () => settle(false);
    let timer: Timer | undefined;
    const start = () => {
      timer = clock.after(withinMs, onGone);
    };
    // The answers before it on the connection are not all sent: nobody can read it yet.
    if (response.socket === null) response.once('socket', start);
    else start();
    response.once('drain', onDrain);
    response.once('close', onGone);
    signal?.addEventListener('abort', onGone, { once: true });
  });
}
