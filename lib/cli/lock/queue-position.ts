/**
 * Reports how many tickets are ahead of a waiting one, and reports again when that changes. It runs
 * beside the wait and never delays it: a lock that is ours does not wait for this report. Used by
 * held-ticket.ts.
 */

import type { CnapiClient } from '../../client/client.ts';
import { ApiError } from '../../client/client-errors.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Ticket } from '../../protocol/api/tickets.ts';

interface PlaceReportDeps {
  client: CnapiClient;
  clock: Clock;
  /** Shows a remark to the user. */
  note(text: string): void;
}

interface PlaceOfTicket {
  serverUuid: string;
  scope: string;
  id: string;
  uuid: string;
}

const PERIOD_MS = 10_000;
/** Places further back are not counted, because every waiting client repeats this request. */
const MOST_AHEAD = 100;

/**
 * `queue` is the queue when the ticket was created; empty when not known. Resolves when `signal`
 * aborts.
 */
export async function reportQueuePosition(
  { client, clock, note }: PlaceReportDeps,
  ticket: PlaceOfTicket,
  { queue, signal }: { queue: readonly Ticket[]; signal: AbortSignal },
): Promise<void> {
  let said: string | undefined;
  const report = (now: readonly Ticket[]) => {
    const place = queuePosition(now, ticket.uuid);
    if (place !== undefined && place !== said) note(place);
    said = place ?? said;
  };
  report(queue);
  for (let isFirst = queue.length > 0; !signal.aborted; isFirst = false) {
    if (!isFirst) {
      const head = await client.queueHead(ticket, MOST_AHEAD + 1, { signal, patienceMs: 0 }).catch(isOld);
      if (head === 'an earlier version') return;
      if (head !== undefined && !signal.aborted) report(head);
    }
    await clock.sleep(PERIOD_MS, signal);
  }
}

/** Returns undefined when no ticket is ahead or the place is unknown. Pure. */
export function queuePosition(queue: readonly Ticket[], uuid: string): string | undefined {
  const index = queue.findIndex((one) => one.uuid === uuid);
  const isFar = index > MOST_AHEAD || (index < 0 && queue.length > MOST_AHEAD);
  if (index <= 0 && !isFar) return undefined;
  const holder = queue.find(({ status }) => status === 'active');
  const about = [holder?.actor, holder?.action].filter((one) => one !== undefined && one !== '').join(', ');
  const held = holder === undefined ? '' : `, held by ticket ${holder.uuid}${about && ` (${about})`}`;
  return `waiting for the lock: ${isFar ? `more than ${MOST_AHEAD}` : index} ahead${held}`;
}

/**
 * An instance of an earlier version cannot list one queue; asking it for all tickets could return
 * very many.
 */
function isOld(error: unknown): 'an earlier version' | undefined {
  return error instanceof ApiError && error.code === 'InvalidArgument' ? 'an earlier version' : undefined;
}
