import { setTimeout as sleep } from 'node:timers/promises';
import { FULL_START_GRACE, faultTest } from '../support/fault-test.ts';
import type { RealAgent } from '../support/fleet-harness.ts';

// docs/design.md I1: leaseMs + ownerlessGraceMs + 3 s, and startGraceMs more, because all
// instances have just started each time.
const PROMISED_MS = 31_000;

const plan = { agents: 3, config: FULL_START_GRACE };

faultTest(
  'servers that die together with instances become unknown in time',
  plan,
  async ({ t, zone, witness, work }) => {
    const [one, two] = zone.agents as [RealAgent, RealAgent];
    work.mayFail(one.serverUuid, ['AgentRestarted', 'NotTaken']);
    work.mayFail(two.serverUuid, ['AgentRestarted', 'NotTaken']);

    await t.test('a server that dies with its instance is marked unknown by the others', async (t) => {
      const instance = await zone.holderOf(one.serverUuid);
      await witness.excuse(one.serverUuid);
      const sinceMs = Date.now();
      await Promise.all([instance.program.kill(), one.program.kill()]);
      t.equal(await witness.seesUnknown(one.serverUuid, { sinceMs, promisedMs: PROMISED_MS }), 'instance-lost');
      instance.program.start();
      one.program.start();
      await zone.ready(instance);
      await witness.excuseEnds(one.serverUuid);
    });

    await t.test(
      'a server that died while all instances were down becomes unknown after it, and no other',
      async (t) => {
        await Promise.all(zone.instances.map(({ program }) => program.kill()));
        await witness.excuse(two.serverUuid);
        await two.program.kill();
        await sleep(12_000);
        const sinceMs = Date.now();
        for (const { program } of zone.instances) program.start();
        await Promise.all(zone.instances.map((instance) => zone.ready(instance)));
        t.equal(await witness.seesUnknown(two.serverUuid, { sinceMs, promisedMs: PROMISED_MS }), 'instance-lost');
        two.program.start();
        await witness.excuseEnds(two.serverUuid);
      },
    );
  },
);
