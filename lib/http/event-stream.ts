/**
 * Server-sent events onto a response. Owns the frames and the keepalive comments; bounded by the response's own buffer:
 * the next event is asked for only when the reader has taken the last ones, and a reader that takes nothing for a
 * minute is cut off with a word about it (it resumes with Last-Event-ID). Called by the listener.
 */
import type { ServerResponse } from 'node:http';
import type { Clock } from '../ports/clock.ts';

export interface ServerSentEvent {
  /** Where to resume after this event. */
  id: string;
  /** Absent: nothing is told but where to resume. */
  name?: string;
  /** Sent as JSON. */
  data?: unknown;
}

export const KEEPALIVE_MS = 15_000;
export const STUCK_READER_MS = 60_000;
/** One that begins to read again within this time learns why its stream ended. */
export const LAST_WORD_MS = 10_000;
const CUT_OFF = `: cut off: nothing was read for ${STUCK_READER_MS / 1000} s; resume with Last-Event-ID\n\n`;

/** Writes `events` until they end or `signal` aborts; the response is ended in either case. */
export async function sendEvents(
  response: ServerResponse,
  events: AsyncIterable<ServerSentEvent>,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
): Promise<void> {
  const keepalive = clock.every(KEEPALIVE_MS, () => {
    if (response.writableLength === 0) response.write(': still here\n\n');
  });
  try {
    // What comes at once goes out in one write with them: a reader that has the headers has what it can go on from.
    clock.afterPoll(() => {
      if (!response.headersSent && !response.destroyed) response.flushHeaders();
    });
    for await (const event of events) {
      if (signal.aborted || response.destroyed) break;
      if (response.write(frame(event)) || (await drained(response, clock, STUCK_READER_MS, signal))) continue;
      if (!signal.aborted && !response.destroyed) await endWithWord(response, clock, signal);
      response.destroy();
      return;
    }
  } finally {
    keepalive.cancel();
    response.end();
  }
}

/** Behind what is already on its way, which is bounded. */
async function endWithWord(response: ServerResponse, clock: Clock, signal: AbortSignal): Promise<void> {
  response.end(CUT_OFF);
  await drained(response, clock, LAST_WORD_MS, signal);
}

function frame({ id, name, data }: ServerSentEvent): string {
  if (name === undefined) return `id: ${id}\n\n`;
  return `id: ${id}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Resolves once the reader has caught up; false when it has not in time, or has left. */
function drained(response: ServerResponse, clock: Clock, withinMs: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (isDrained: boolean) => {
      timer.cancel();
      response.off('drain', onDrain);
      response.off('close', onGone);
      signal.removeEventListener('abort', onGone);
      resolve(isDrained);
    };
    const onDrain = () => settle(true);
    const onGone = () => settle(false);
    const timer = clock.after(withinMs, onGone);
    response.once('drain', onDrain);
    response.once('close', onGone);
    signal.addEventListener('abort', onGone, { once: true });
  });
}
