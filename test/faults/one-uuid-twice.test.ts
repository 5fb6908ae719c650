import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';
import type { RealAgent } from '../support/fleet-harness.ts';
import { until } from '../support/until.ts';

faultTest('of two agents with one server uuid, one at a time is accepted', {}, async ({ t, zone, witness, work }) => {
  const { serverUuid, program: first } = zone.agents[0] as RealAgent;
  const clone = zone.addAgent(serverUuid).program;

  await t.test('the second is refused and logs it while the first answers', async (t) => {
    await until(() => clone.log().some(({ msg }) => msg === 'link: another agent has this uuid'));
    await sleep(6_000);
    t.notOk(clone.log().some(({ msg }) => msg === 'link: live'));
    const refusals = zone.instances.flatMap(({ program }) =>
      program.log().filter(({ server_uuid, code }) => server_uuid === serverUuid && code === 'incarnation-alive'),
    );
    t.ok(refusals.length > 0, 'the instances have logged it');
  });

  await t.test('the second is accepted when the first has ended', async (t) => {
    work.mayFail(serverUuid, ['OutcomeUnknown']);
    await witness.excuse(serverUuid);
    await first.kill();
    await until(() => clone.log().some(({ msg }) => msg === 'link: live'));
    await witness.excuseEnds(serverUuid);
    t.equal((await work.command(serverUuid, 0.1))?.status, 'complete');
  });
});

faultTest(
  'a machine reinstalled with its old uuid ends its former tasks',
  { agents: 1 },
  async ({ t, zone, witness, work }) => {
    const { serverUuid, data, program } = zone.agents[0] as RealAgent;
    work.mayFail(serverUuid, ['OutcomeUnknown']);
    const once = work.command(serverUuid, 20);
    const again = work.task(serverUuid, { task: 'sleep', params: { timeout: 8_000 } });
    await sleep(2_000);
    await witness.excuse(serverUuid);
    await program.kill();
    await rm(data, { recursive: true });
    program.start();
    await witness.excuseEnds(serverUuid);
    const end = await once;
    t.equal(end?.status, 'failure', 'the outcome of the command is unknown');
    t.match(end?.history[0], { name: 'error', event: { error: { code: 'OutcomeUnknown' } } });
    const repeated = await again;
    t.equal(repeated?.status, 'complete', 'an idempotent task runs again');
    t.equal(repeated?.attempt, 2);
  },
);
