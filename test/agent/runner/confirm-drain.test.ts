/** The pause of a job that drains a server, and what the agent refuses without it. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { until } from '../../support/until.ts';
import { setUp } from '../runner-rig.ts';

const job = randomUUID();

/** An agent that may reboot its machine, and drains for `job`. */
async function draining(t: Test) {
  const rig = setUp(t, undefined, { allowReboot: true });
  const ask = (name: string, params = {}) => rig.end(rig.give({ name, params }));
  t.match(await ask('agent_pause', { drain: job, lease: 60_000 }), { outcome: 'complete' });
  return { ...rig, ask };
}

t.test('a refused task is told which job drains the server, also beside the pause of an operator', async (t) => {
  const { ask } = await draining(t);
  await ask('agent_pause');
  const message = new RegExp(`workflow job ${job} drains .*: cnapi workflow cancel ${job}$`);
  t.match(await ask('nop'), { error: { code: 'AgentPaused', message } });
});

t.test('a drain ends by itself', async (t) => {
  const { ask, runner } = await draining(t);
  t.match(await ask('agent_pause', { drain: job, lease: 0 }), { error: { code: 'InvalidParameters' } });
  t.match(await ask('nop'), { error: { code: 'AgentPaused' } });
  await ask('agent_pause', { drain: job, lease: 1 });
  await until(() => !runner.isPaused, 'the end of the drain');
});

t.test('the end of a drain leaves the pause of an operator, and that of another job', async (t) => {
  const { ask, runner } = await draining(t);
  await ask('agent_resume', { drain: randomUUID() });
  t.ok(runner.isPaused, 'by its job');
  await ask('agent_pause');
  await ask('agent_resume', { drain: job });
  t.ok(runner.isPaused, 'by the operator');
  await ask('agent_resume');
  t.notOk(runner.isPaused);
});

t.test('a paused agent tells its sysinfo', async (t) => {
  const { ask } = await draining(t);
  t.match(await ask('server_sysinfo'), { outcome: 'complete' });
});

t.test('a drained server reboots for its job', async (t) => {
  const { ask } = await draining(t);
  t.match(await ask('server_reboot', { drain: job }), { outcome: 'complete' });
});

t.test('a server that is not drained any more does not reboot for the job', async (t) => {
  const refused = { outcome: 'failure', error: { code: 'NotDrained', message: /its agent is not paused for it/ } };
  const { ask } = await draining(t);
  t.match(await ask('server_reboot', { drain: randomUUID() }), refused, 'it is drained for another one');
  await ask('agent_resume');
  t.match(await ask('server_reboot', { drain: job }), refused, 'an operator has resumed the agent');
  await ask('agent_pause');
  t.match(await ask('server_reboot', { drain: job }), refused, 'it is paused for nobody');
  t.match(await ask('server_reboot'), { outcome: 'complete' }, 'without a job, nothing is asked');
});

t.test('a server with a task that has not ended does not reboot for the job', async (t) => {
  const { give, end } = setUp(t, undefined, { allowReboot: true });
  const sleep = give({ name: 'sleep', params: { timeout: 3_600_000 } });
  await end(give({ name: 'agent_pause', params: { drain: job, lease: 60_000 } }));
  t.match(await end(give({ name: 'server_reboot', params: { drain: job } })), {
    error: { code: 'NotDrained', message: `its task ${sleep} (sleep) has not ended` },
  });
});
