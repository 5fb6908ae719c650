import t from 'tap';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { busContract } from '../platform/bus/contract.ts';
import { createMemoryBus, MemoryHub } from './memory-bus.ts';
import { until } from './until.ts';

const ports = { clock: systemClock, random: systemRandom, log: silentLogger };

t.test('the memory bus fulfils the contract', (t) =>
  busContract(t, async () => {
    const hub = new MemoryHub();
    return {
      open: () => createMemoryBus({ hub, ...ports }),
      interrupt: async () => {
        hub.kill();
        hub.restore();
      },
      sendRaw: async (topic, payload) => hub.deliver(topic, payload),
    };
  }),
);

t.test('a bus is healthy as soon as it is connected, not a period later', async (t) => {
  const bus = createMemoryBus({ hub: new MemoryHub(), ...ports, beatMs: 3_600_000 });
  t.teardown(() => bus.stop());
  await bus.start();
  await until(() => bus.isHealthy());
});

t.test('a frozen hub is detected by its silence, dropped and connected to again', async (t) => {
  const hub = new MemoryHub();
  const bus = createMemoryBus({ hub, ...ports, beatMs: 20 });
  t.teardown(() => bus.stop());
  await bus.start();
  await until(() => bus.isHealthy());
  hub.freeze();
  await until(() => !bus.isHealthy());
  for (let n = 0; n < 1_200; n++) bus.publish('task:1', { n });
  await until(() => bus.stats().dropped === 1_200);
  hub.restore();
  await until(() => bus.isHealthy());
  t.equal(bus.stats().reconnects, 1);
});
