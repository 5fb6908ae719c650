import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';
import type { RealAgent } from '../support/fleet-harness.ts';

// Longer than the default, because what is sent during the freeze must be accepted before the
// server counts as silent.
const config = { silenceMs: 6_000, serverSilenceMs: 9_000 };

faultTest(
  'an agent that is frozen for 20 s completes its tasks after the thaw',
  { config },
  async ({ t, zone, witness, work }) => {
    const agent = zone.agents[0] as RealAgent;
    const { serverUuid } = agent;
    // Requests may find the server unknown. What was accepted must complete.
    work.mayFail(serverUuid, []);

    // One task runs during the freeze, one is sent during it.
    const running = work.command(serverUuid, 8);
    await sleep(1_000);
    await witness.excuse(serverUuid);
    const sinceMs = Date.now();
    agent.program.freeze();
    const sent = work.command(serverUuid, 1);
    t.equal(await witness.seesUnknown(serverUuid, { sinceMs, promisedMs: 6_250 }), 'silent');
    await sleep(20_000 - (Date.now() - sinceMs));
    agent.program.thaw();
    await witness.excuseEnds(serverUuid);
    t.equal((await running)?.status, 'complete', 'the task that ran during the freeze is complete');
    t.equal((await sent)?.status, 'complete', 'the task that was sent during the freeze is complete');
  },
);
