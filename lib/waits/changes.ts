/**
 * How changes that waits want to know of are told to every instance: `{ids: […]}` on one topic for all things of a kind,
 * many in one message. A topic for each thing would cost its waiter two requests to the bus, and another look at the
 * database when the first of them is confirmed. Pure but for the publishing.
 */
import type { Bus, BusMessage } from '../bus/bus.ts';

/** So many uuids are within a message's bytes. */
const IDS_A_MESSAGE = 90;

export function publishChanges(bus: Bus, topic: string, ids: readonly string[]): void {
  for (let start = 0; start < ids.length; start += IDS_A_MESSAGE) {
    bus.publish(topic, { ids: ids.slice(start, start + IDS_A_MESSAGE) });
  }
}

/** None in what is no such message. */
export function changedIds({ ids }: BusMessage): string[] {
  return Array.isArray(ids) ? ids.filter((id) => typeof id === 'string') : [];
}
