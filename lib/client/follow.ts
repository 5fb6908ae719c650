/**
 * Follows a stream of server-sent events over any number of instances. When an instance leaves or
 * falls silent, the next one is asked to continue after the last event received (Last-Event-ID).
 * Ends when the server reports that no more events will come (204), when the reader stops, or with
 * an error: ApiError when no other instance would answer differently, NoAnswerError when none could
 * be reached for a minute.
 */
import { CnapiError, messageOf } from '../platform/errors.ts';
import type { HttpAnswer } from '../platform/http-client/pending-request.ts';
import type { FailoverClient } from './failover-client.ts';
import { EventParser, type ReceivedEvent } from './server-sent.ts';

interface FollowRequest {
  path: string;
  after?: string | undefined;
  /** Called when the stream broke off, before it is resumed. */
  onBroken?: ((reason: string) => void) | undefined;
  /**
   * Called when a stream is open and its position is known. From then on it can be resumed from
   * that position at any instance.
   */
  onOpen?: (() => void) | undefined;
}

/** Instances send a comment every 15 s when there is nothing else to send. */
const SILENCE_MS = 40_000;
const PATIENCE_MS = 60_000;
const PAUSE_MS = 250;

export async function* follow(http: FailoverClient, request: FollowRequest): AsyncGenerator<ReceivedEvent> {
  const { path } = request;
  let { after } = request;
  for (let isFirst = true; ; isFirst = false) {
    const headers = { accept: 'text/event-stream', ...(after === undefined ? {} : { 'last-event-id': after }) };
    const patience = isFirst ? {} : { patienceMs: PATIENCE_MS };
    const call = { method: 'GET', path, headers, ownConnection: true, ...patience } as const;
    const response = await http.open(call, async (opened: HttpAnswer) => opened);
    if (response.status === 204) return response.drop();
    let isOpen = false;
    const stands = () => {
      if (!isOpen) request.onOpen?.();
      isOpen = true;
    };
    if (after !== undefined) stands();
    const parser = new EventParser();
    try {
      for await (const piece of response.pieces({ silenceMs: SILENCE_MS })) {
        const events = parser.push(piece);
        if (parser.lastId !== undefined) stands();
        for (const event of events) {
          after = event.id ?? after;
          yield event;
        }
        after = parser.lastId ?? after;
      }
      request.onBroken?.('the instance ended the stream');
    } catch (error) {
      if (error instanceof CnapiError) throw error;
      request.onBroken?.(messageOf(error));
    }
    await http.clock.sleep(PAUSE_MS);
  }
}
