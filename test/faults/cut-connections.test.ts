import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';
import type { RealAgent } from '../support/fleet-harness.ts';

// Makes sure that the instance notices first; by default that depends on which side is delayed
// less.
const config = { serverSilenceMs: 12_000 };

faultTest(
  'connections that are cut without a FIN are detected by both sides',
  { proxied: true, config },
  async ({ t, zone, witness, work }) => {
    const { serverUuid } = zone.agents[0] as RealAgent;
    work.mayFail(serverUuid, []);

    await t.test('an agent whose connection is dead becomes silent and connects to another instance', async (t) => {
      const holder = await zone.holderOf(serverUuid);
      const running = work.command(serverUuid, 5);
      await sleep(500);
      await witness.excuse(serverUuid);
      const sinceMs = Date.now();
      holder.proxy?.swallow({ serverUuid });
      t.equal(await witness.seesUnknown(serverUuid, { sinceMs, promisedMs: 2_250 }), 'silent');
      await witness.excuseEnds(serverUuid);
      t.not((await zone.holderOf(serverUuid)).uuid, holder.uuid, 'another instance has it');
      t.equal((await running)?.status, 'complete');
      holder.proxy?.heal();
      await sleep(3_000);
      t.not((await zone.holderOf(serverUuid)).uuid, holder.uuid, 'late data of the old connection changes nothing');
    });

    await t.test('an instance that no agent can reach loses all its agents to the others', async () => {
      const holder = await zone.holderOf(serverUuid);
      const held = await zone.sql<{ uuid: string }>(
        'select server_uuid as uuid from cnapi_roster_authority where cnapi_uuid = $1',
        [holder.uuid],
      );
      for (const { uuid } of held) {
        work.mayFail(uuid, []);
        await witness.excuse(uuid);
      }
      holder.proxy?.swallow();
      for (const { uuid } of held) await witness.excuseEnds(uuid);
      holder.proxy?.heal();
      await sleep(3_000);
    });

    await t.test('both ends notice a reset at once', async () => {
      const holder = await zone.holderOf(serverUuid);
      await witness.excuse(serverUuid);
      holder.proxy?.reset({ serverUuid });
      await witness.excuseEnds(serverUuid);
    });
  },
);
