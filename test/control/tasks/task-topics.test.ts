import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  hintedServers,
  publishChangedTasks,
  publishTaskHints,
  TASK_ENDS_TOPIC,
  taskTopic,
} from '../../../lib/control/tasks/task-topics.ts';
import type { Bus, BusMessage } from '../../../lib/platform/bus/bus.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { createMemoryBus, MemoryHub } from '../../support/memory-bus.ts';
import { until } from '../../support/until.ts';

t.test('a hint for more servers than fit into one message reaches the run whole', async (t) => {
  const ports = { clock: systemClock, random: systemRandom, log: silentLogger };
  const bus = createMemoryBus({ ...ports, hub: new MemoryHub() });
  t.teardown(() => bus.stop());
  await bus.start();
  const received: BusMessage[] = [];
  await new Promise<void>((ready) => bus.subscribe('run:x', (message) => received.push(message), ready));
  const servers = Array.from({ length: 200 }, () => randomUUID());
  publishTaskHints(
    bus,
    servers.map((serverUuid) => ({ serverUuid, run: 'x' })),
    'own',
  );
  await until(() => received.flatMap(hintedServers).length === servers.length, 'all servers');
  t.strictSame(received.flatMap(hintedServers), servers);
});

t.test('a hint goes to each other run with authority, once', async (t) => {
  const published: unknown[] = [];
  const bus = { publish: (topic: string, message: object) => published.push([topic, message]) } as unknown as Bus;
  const servers = Object.entries({ a: 'x', b: 'own', c: null, d: 'x', e: 'y' });
  publishTaskHints(
    bus,
    servers.map(([serverUuid, run]) => ({ serverUuid, run })),
    'own',
  );
  t.strictSame(published, [
    ['run:x', { kind: 'tasks', server_uuids: ['a', 'd'] }],
    ['run:y', { kind: 'tasks', server_uuids: ['e'] }],
  ]);
});

t.test('other messages, and what is not a uuid, are not hints', async (t) => {
  t.strictSame(hintedServers({ kind: 'roster', server_uuids: ['a'] }), []);
  t.strictSame(hintedServers({ kind: 'tasks', server_uuids: 'a' }), []);
  t.strictSame(hintedServers({ kind: 'tasks', server_uuids: ['a', 1, null] }), ['a']);
});

t.test('ends are published together, and each other change to those who follow the task', async (t) => {
  const published: unknown[] = [];
  const bus = { publish: (topic: string, message: object) => published.push([topic, message]) } as unknown as Bus;
  publishChangedTasks(bus, [
    { id: 'x', ended: false },
    { id: 'y', ended: true },
    { id: 'z', ended: true },
  ]);
  t.same(published, [
    [taskTopic('x'), { id: 'x' }],
    [TASK_ENDS_TOPIC, { ids: ['y', 'z'] }],
  ]);
});
