import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PARALLEL_TASKS } from '../../lib/agent/runner/lanes.ts';
import { faultTest } from '../support/fault-test.ts';
import type { RealAgent } from '../support/fleet-harness.ts';
import { until } from '../support/until.ts';

/** Counts the tasks that the server's agent has accepted. */
const STARTED_AND_WAITING = `
  select count(started_at)::int as started, (count(*) - count(started_at))::int as waiting
  from cnapi_tasks where server_uuid = $1 and state = 'claimed' and accepted_at is not null`;

faultTest('a killed agent loses only what it was running', {}, async ({ t, zone, witness, work }) => {
  const agent = zone.agents[0] as RealAgent;
  const { serverUuid } = agent;
  // What ran when it died ends with an unknown outcome; everything else continues.
  work.mayFail(serverUuid, ['AgentRestarted']);

  await t.test('its server is unknown at once; started tasks fail and accepted ones run later', async (t) => {
    // More than the agent runs at once, so that some are accepted and wait.
    const leave = path.join(zone.directory, 'leave');
    const crowd = Array.from({ length: PARALLEL_TASKS + 8 }, () => work.commandUntil(serverUuid, leave));
    await until(async () => {
      const [counts] = await zone.sql<{ started: number; waiting: number }>(STARTED_AND_WAITING, [serverUuid]);
      return counts !== undefined && counts.started >= PARALLEL_TASKS && counts.waiting > 2;
    }, 'the agent to run as many as it can, with some waiting');
    await witness.excuse(serverUuid);
    const sinceMs = Date.now();
    await agent.program.kill();
    t.equal(await witness.seesUnknown(serverUuid, { sinceMs, promisedMs: 2_250 }), 'closed');
    await sleep(3_000);
    agent.program.start();
    await witness.excuseEnds(serverUuid);
    writeFileSync(leave, '');
    const outcomes = new Set((await Promise.all(crowd)).map((end) => end?.status));
    t.ok(outcomes.has('failure') && outcomes.has('complete'), 'some had started and some had not');
  });

  await t.test('an agent that restarts at once continues too', async () => {
    await witness.excuse(serverUuid);
    await agent.program.kill();
    agent.program.start();
    await witness.excuseEnds(serverUuid);
    await sleep(3_000);
  });
});
