/**
 * Tells whoever waits for a lock how many are ahead, and again when that has changed. Beside the wait, never in its way: a lock
 * that is ours is not kept waiting for a remark about it. Used by ticket-keeper.ts.
 */
import type { Ticket } from '../client/answers.ts';
import type { CnapiClient } from '../client/client.ts';
import { ApiError } from '../client/client-errors.ts';
import type { Clock } from '../ports/clock.ts';

export interface PlaceTellerDependencies {
  client: CnapiClient;
  clock: Clock;
  /** Remarks for people. */
  note(text: string): void;
}

export interface PlaceOfTicket {
  serverUuid: string;
  scope: string;
  id: string;
  uuid: string;
}

const PERIOD_MS = 10_000;
/** A place further back is not counted: all who wait ask again and again. */
const MOST_AHEAD = 100;

/** `queue`: as it was when the ticket was made; empty where that is not known. Resolves once `signal` aborts. */
export async function tellPlace(
  { client, clock, note }: PlaceTellerDependencies,
  ticket: PlaceOfTicket,
  { queue, signal }: { queue: readonly Ticket[]; signal: AbortSignal },
): Promise<void> {
  let said: string | undefined;
  const tell = (now: readonly Ticket[]) => {
    const place = placeIn(now, ticket.uuid);
    if (place !== undefined && place !== said) note(place);
    said = place ?? said;
  };
  tell(queue);
  for (let isFirst = queue.length > 0; !signal.aborted; isFirst = false) {
    if (!isFirst) {
      const head = await client.queueHead(ticket, MOST_AHEAD + 1, { signal, patienceMs: 0 }).catch(isOld);
      if (head === 'an earlier version') return;
      if (head !== undefined && !signal.aborted) tell(head);
    }
    await clock.sleep(PERIOD_MS, signal);
  }
}

/** Undefined where there is nothing to wait for, or no telling. Pure. */
export function placeIn(queue: readonly Ticket[], uuid: string): string | undefined {
  const index = queue.findIndex((one) => one.uuid === uuid);
  const isFar = index > MOST_AHEAD || (index < 0 && queue.length > MOST_AHEAD);
  if (index <= 0 && !isFar) return undefined;
  const holder = queue.find(({ status }) => status === 'active');
  const held =
    holder === undefined ? '' : `, held by ticket ${holder.uuid}${holder.action ? ` (${holder.action})` : ''}`;
  return `waiting for the lock: ${isFar ? `more than ${MOST_AHEAD}` : index} ahead${held}`;
}

/** Of one that cannot tell a queue's tickets from all others, nothing more is asked: there may be very many. */
function isOld(error: unknown): 'an earlier version' | undefined {
  return error instanceof ApiError && error.code === 'InvalidArgument' ? 'an earlier version' : undefined;
}
