/** Instances of the waitlist over one database, each with a bus of its own. */

import { Waitlist, type WaitlistConfig } from '../../../../lib/control/waitlist/waitlist.ts';
import type { Bus } from '../../../../lib/platform/bus/bus.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { createMemoryBus, type MemoryHub } from '../../../support/memory-bus.ts';

export const ports = { clock: systemClock, random: systemRandom, log: silentLogger };

/** Slow polls that no test waits for by accident. Tests about slow polls set their own. */
const config: WaitlistConfig = { slowPollMs: 60_000, slowPollNoBusMs: 60_000 };

export interface InstanceOptions {
  database: Database;
  bus: Bus;
  config?: Partial<WaitlistConfig>;
  maxWaiters?: number;
}

export const memoryBus = (hub: MemoryHub): Bus => createMemoryBus({ hub, ...ports, beatMs: 50 });

export async function startWaitlist(
  t: { teardown(work: () => unknown): void },
  { bus, ...options }: InstanceOptions,
): Promise<Waitlist> {
  const waitlist = new Waitlist({ ...ports, ...options, bus, config: { ...config, ...options.config } });
  t.teardown(async () => {
    await waitlist.stop();
    await bus.stop();
  });
  await bus.start();
  await waitlist.start();
  return waitlist;
}
