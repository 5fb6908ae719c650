/**
 * Sends the changes that waits need to every instance: `{ids: […]}` on one topic per kind of
 * object, with many ids in one message. One topic per object would cost each waiter two requests to
 * the bus, and another read of the database when its subscription is confirmed. Pure except for the
 * publishing.
 */

import type { Bus, BusMessage } from '../bus/bus.ts';
import { chunksOf } from '../chunks.ts';

/** This many uuids fit into one message. */
const IDS_A_MESSAGE = 90;

export function publishChanges(bus: Bus, topic: string, ids: readonly string[]): void {
  for (const some of chunksOf(ids, IDS_A_MESSAGE)) bus.publish(topic, { ids: some });
}

/** Returns an empty list for a malformed message. */
export function changedIds({ ids }: BusMessage): string[] {
  return Array.isArray(ids) ? ids.filter((id) => typeof id === 'string') : [];
}
