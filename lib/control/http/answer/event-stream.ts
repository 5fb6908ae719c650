/**
 * Writes server-sent events to a response. Owns the frames and the keepalive comments. Bounded by
 * the response's own buffer: requests the next event only when the reader has taken the last ones.
 * Cuts off a reader that takes nothing for a minute, with a reason (it resumes with Last-Event-ID).
 * Called by the listener.
 */
import type { ServerResponse } from 'node:http';
import type { Clock } from '../../../platform/time/clock.ts';
import type { ServerSentEvent } from '../route.ts';
import { untilDrained } from './write-bounded.ts';

export const KEEPALIVE_MS = 15_000;
export const STUCK_READER_MS = 60_000;
/** Answer memory of a stream without events. */
export const STREAM_BYTES = 4 * 1024;
/** A reader that continues within this time learns why its stream ended. */
export const END_EVENT_MS = 10_000;
const CUT_OFF = `: cut off: nothing was read for ${STUCK_READER_MS / 1000} s; resume with Last-Event-ID\n\n`;

/**
 * Writes `events` until they end or `signal` aborts, and ends the response in either case. Calls
 * `held` with the bytes that the stream holds, before each event. If `held` throws, the stream
 * breaks off, and its reader resumes.
 */
export async function sendEvents(
  response: ServerResponse,
  events: AsyncIterable<ServerSentEvent>,
  { clock, signal, held }: { clock: Clock; signal: AbortSignal; held: (bytes: number) => void },
): Promise<void> {
  const keepalive = clock.every(KEEPALIVE_MS, () => {
    if (response.writableLength > 0) return;
    held(STREAM_BYTES);
    response.write(': still here\n\n');
  });
  try {
    // Sends the headers in one write with events that are ready immediately: a reader that has the
    // headers also has a place to resume from.
    clock.afterPoll(() => {
      if (!response.headersSent && !response.destroyed) response.flushHeaders();
    });
    for await (const event of events) {
      if (signal.aborted || response.destroyed) break;
      const text = Buffer.from(frame(event));
      // Bytes that the reader has not taken yet are held as well.
      held(STREAM_BYTES + response.writableLength + text.length);
      if (response.write(text) || (await untilDrained(response, STUCK_READER_MS, { clock, signal }))) continue;
      if (!signal.aborted && !response.destroyed) await endWithComment(response, clock, signal);
      response.destroy();
      return;
    }
  } finally {
    keepalive.cancel();
    response.end();
  }
}

/** Goes behind the buffered bytes, which are bounded. */
async function endWithComment(response: ServerResponse, clock: Clock, signal: AbortSignal): Promise<void> {
  response.end(CUT_OFF);
  await untilDrained(response, END_EVENT_MS, { clock, signal });
}

function frame({ id, name, data }: ServerSentEvent): string {
  if (name === undefined) return `id: ${id}\n\n`;
  return `id: ${id}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}
