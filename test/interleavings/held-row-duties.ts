/** Work on duties, for the test of a locked row. */
import { randomUUID } from 'node:crypto';
import type { Test } from 'tap';
import { DutyKeeper } from '../../lib/control/duty/duty-keeper.ts';
import type { PostgresDatabase } from '../../lib/platform/postgres/pool.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { dutyRow } from '../control/duty/support.ts';
import { liveRun } from '../control/legacy/support/legacy-seats.ts';
import { createDuties } from '../support/create-duties.ts';
import { createMemoryBus, MemoryHub } from '../support/memory-bus.ts';
import { until } from '../support/until.ts';
import { heldOf, NAMES, ports, type Work, workOn } from './held-row-work.ts';

export async function dutyWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const run = await liveRun(database);
  const bus = createMemoryBus({ hub: new MemoryHub(), random: systemRandom, ...ports, beatMs: 50 });
  await bus.start();
  const finish = Promise.withResolvers<void>();
  const keeper = new DutyKeeper({
    database,
    bus,
    ...ports,
    config: { slowPollMs: 60_000, slowPollNoBusMs: 60_000 },
    run: () => run,
    isHealthy: () => true,
  });
  t.teardown(async () => {
    finish.resolve();
    await keeper.stop();
    await bus.stop();
  });
  const [short, long] = [NAMES.map(() => randomUUID()), NAMES.map(() => randomUUID())];
  await createDuties(database, 'long', long);
  keeper.start({ short: { carryOut: async () => {} }, long: { carryOut: () => finish.promise } });
  await until(() => keeper.held === NAMES.length, 'the long ones to be claimed');
  await createDuties(database, 'short', short);
  const work = (name: string, ids: readonly string[], begin: () => void) =>
    workOn(ids, {
      name,
      holds: { cnapi_duties: `id = '${heldOf(ids)}'` },
      begin,
      isSo: async (id) => (await dutyRow(database, id)).state === 'ended',
    });
  return [work('claims of duties', short, () => keeper.offer()), work('ends of duties', long, () => finish.resolve())];
}
