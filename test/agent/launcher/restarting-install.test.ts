/** Packages whose program `install` ends the agent, as those of Triton's agents do. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
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
