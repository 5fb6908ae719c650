import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';
import type { Zone } from '../support/fleet-harness.ts';
import { HANG_MS } from '../support/patience.ts';
import { until } from '../support/until.ts';

const config = { balanceQuietMs: 3_000 };

async function agentsOf(zone: Zone, uuid: string): Promise<number> {
  const [row] = await zone.sql<{ count: number }>(
    "select count(*)::int as count from cnapi_roster_authority where cnapi_uuid = $1 and status = 'running'",
    [uuid],
  );
  return row?.count ?? 0;
}

async function epochs(zone: Zone): Promise<string | undefined> {
  return (await zone.sql<{ sum: string }>('select sum(epoch) from cnapi_roster_authority'))[0]?.sum;
}

faultTest(
  'an instance added to two others receives its share of agents, and no server becomes unknown',
  { instances: 2, simulated: 120, config },
  async ({ t, zone, witness }) => {
    const added = await zone.addInstance();
    witness.watch(added);
    await zone.ready(added);
    const mean = 122 / 3;
    await until(async () => (await agentsOf(zone, added.uuid)) > 0);
    const isShared = async () => {
      const counts = await Promise.all(zone.instances.map(({ uuid }) => agentsOf(zone, uuid)));
      return Math.max(...counts) <= Math.ceil(mean * 1.1 + 10);
    };
    await until(isShared, 'each instance to have its share', 90_000 + HANG_MS);
    await until(async () => {
      const before = await epochs(zone);
      await sleep(3_000);
      return (await epochs(zone)) === before;
    });
    t.pass('then the agents stay where they are');
  },
);
