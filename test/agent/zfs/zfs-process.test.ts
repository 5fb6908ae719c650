/** An agent as a process of its own, which finds the programs of ZFS on its PATH. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { matchLists } from '../../support/match-lists.ts';
import { ScriptedInstance } from '../../support/scripted-instance.ts';
import { lacksZfs, startZfsFuse } from '../../support/zfs-fuse.ts';

const MAIN = fileURLToPath(new URL('../../../lib/agent/main.ts', import.meta.url));

t.test('an agent changes the datasets of --zfs, and no others', { skip: lacksZfs() }, async (t) => {
  const real = await startZfsFuse(t);
  await real.run('zfs', 'create', 'tank/data');
  const instance = await ScriptedInstance.start();
  t.teardown(() => instance.stop());
  const args = [MAIN, '--url', instance.url, '--data', join(real.directory, 'agent'), '--zfs', 'tank/data'];
  const env = { ...process.env, PATH: `${join(real.directory, 'bin')}:${process.env.PATH}` };
  const agent = spawn(process.execPath, args, { stdio: 'ignore', env });
  const exit = once(agent, 'exit');
  t.teardown(async () => {
    agent.kill('SIGKILL');
    await exit;
  });
  const session = await instance.session(0);
  const { capabilities } = await session.received('hello');
  t.ok(capabilities.includes('task:zfs_create_dataset'));
  const { epoch } = await session.received('inventory');
  const run = (name: string, params: Record<string, unknown>) => {
    const id = crypto.randomUUID();
    session.task({ id, epoch, name, params });
    return session.end(id);
  };
  t.match(await run('zfs_create_dataset', { dataset: 'tank/data/one' }), { outcome: 'complete' });
  const { result } = await run('zfs_list_datasets', { dataset: 'tank/data' });
  matchLists(t, result, { datasets: [{ name: 'tank/data' }, { name: 'tank/data/one', type: 'filesystem' }] });
  matchLists(t, await run('zfs_list_pools', {}), { result: { pools: [{ name: 'tank', health: 'ONLINE' }] } });
  t.match(await run('zfs_destroy_dataset', { dataset: 'tank' }), {
    outcome: 'failure',
    error: { code: 'DatasetNotChangeable', message: /only datasets within tank\/data/ },
  });
  t.match(await run('zfs_get_properties', { dataset: 'tank/none' }), {
    error: { code: 'ZfsFailed', message: /does not exist/ },
  });
  t.match(await run('zfs_set_properties', { dataset: 'tank/data', properties: {} }), {
    error: { code: 'InvalidParameters' },
  });
});
