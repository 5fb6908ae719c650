/** Packages whose program `install` ends the agent, as those of Triton's agents do. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { allProcesses, signalProcess } from '../../../lib/agent/machine/proc.ts';
import { packageShop, script, startLauncher } from '../../support/agent-packages.ts';
import { ScriptedInstance } from '../../support/scripted-instance.ts';
import { until } from '../../support/until.ts';

t.test('a package whose program restarts the agent is given up after three starts', async (t) => {
  const [shop, one] = await Promise.all([packageShop(t), ScriptedInstance.start({})]);
  t.teardown(() => one.stop());
  const ran = join(shop.folder, 'ran');
  const runs = async () => (await readFile(ran, 'utf8').catch(() => '')).split('\n').length - 1;
  const install = script('install', `echo ran >> ${ran}; exec sleep 60`);
  const file = await shop.add({ name: 'net-agent', version: '1.0.0', files: [install] });
  const id = crypto.randomUUID();
  const ends = () => one.sessions.flatMap((session) => session.all('task_end')).filter((end) => end.id === id);
  const start = () => startLauncher(t, shop, { url: one.url, more: ['--package-scripts'] });
  let service = start();
  const session = await one.session(0);
  const { epoch } = await session.received('inventory');
  session.task({ id, epoch, name: 'agent_install', params: { package_file: file }, timeoutMs: 600_000 });
  for (let starts = 1; starts <= 3; starts++) {
    await until(async () => (await runs()) === starts, `run ${starts} of the program`);
    service.child.kill('SIGTERM');
    await service.exit;
    t.same(ends(), [], `the stop of start ${starts} ends nothing`);
    service = start();
  }
  const end = await until(() => ends()[0], 'the end of the task');
  t.match(end, { outcome: 'failure', error: { code: 'OutcomeUnknown', message: /ended three times/ } });
  t.equal(await runs(), 3);
});

t.test('the program of a package ends before it runs again, when its agent was killed', async (t) => {
  const [shop, one] = await Promise.all([packageShop(t), ScriptedInstance.start({})]);
  t.teardown(() => one.stop());
  const named = join(shop.folder, 'pids');
  const pids = async () => (await readFile(named, 'utf8').catch(() => '')).split('\n').slice(0, -1).map(Number);
  const install = script('install', `echo $$ >>${named}; exec sleep 60`);
  t.teardown(async () => (await pids()).forEach((pid) => void signalProcess(pid, 'SIGKILL')));
  const file = await shop.add({ name: 'net-agent', version: '1.0.0', files: [install] });
  const start = () => startLauncher(t, shop, { url: one.url, more: ['--package-scripts'] });
  const service = start();
  const session = await one.session(0);
  const { epoch } = await session.received('inventory');
  const params = { package_file: file };
  session.task({ id: crypto.randomUUID(), epoch, name: 'agent_install', params, timeoutMs: 600_000 });
  await until(async () => (await pids()).length === 1, 'the program to run');
  await service.killAll();
  const [first = 0] = await pids();
  const isAlive = async (pid: number) => (await allProcesses()).some((one) => one.pid === pid && one.state !== 'Z');
  t.ok(await isAlive(first), 'the program outlives its agent');
  start();
  await until(async () => (await pids()).length === 2, 'the program to run again');
  t.notOk(await isAlive(first));
});
