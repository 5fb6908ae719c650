import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';
import type { RealAgent } from '../support/fleet-harness.ts';

// Longer than by default: what is sent into the freeze must be accepted before the server counts as silent.
const config = { silenceMs: 6_000, serverSilenceMs: 9_000 };

faultTest('an agent frozen for 20 s and thawed', { config }, async ({ t, zone, witness, work }) => {
  const agent = zone.agents[0] as RealAgent;
  const { serverUuid } = agent;
  // Requests may find the server unknown; what was accepted must complete.
  work.mayFail(serverUuid, []);

  // One runs through the freeze, one is sent into it.
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
  t.equal((await running)?.status, 'complete', 'what ran through the freeze is complete');
  t.equal((await sent)?.status, 'complete', 'what was sent into it as well');
});
