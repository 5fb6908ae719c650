import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { Bus, BusMessage } from '../../../lib/platform/bus/bus.ts';
import { encodeBusMessage } from '../../../lib/platform/bus/message.ts';
import { changedIds, publishChanges } from '../../../lib/platform/waits/changes.ts';

t.test('changed ids are published in few messages, each within the limits of the bus', async (t) => {
  const messages: BusMessage[] = [];
  const bus = { publish: (_topic: string, message: BusMessage) => messages.push(message) } as unknown as Bus;
  publishChanges(bus, 'things', []);
  t.equal(messages.length, 0);
  const ids = Array.from({ length: 200 }, () => randomUUID());
  publishChanges(bus, 'things', ids);
  t.equal(messages.length, 3);
  t.ok(messages.every((message) => encodeBusMessage(message) !== undefined));
  t.same(messages.flatMap(changedIds), ids);
});

t.test('a malformed message names no ids, or only those that are texts', async (t) => {
  for (const message of [{}, { ids: 'x' }, { ids: null }, { id: 'x' }]) t.same(changedIds(message), []);
  t.same(changedIds({ ids: ['x', 7, null, 'y'] }), ['x', 'y']);
});
