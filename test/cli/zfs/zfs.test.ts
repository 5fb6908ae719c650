import t from 'tap';
import { VmAgent } from '../../control/vms/vm-agent.ts';
import { freshZone } from '../../support/apps.ts';
import { Cli } from '../rig.ts';

const ONE = { name: 'zones/a', type: 'filesystem', used: '1.5G', avail: '2G', refer: '24K', mountpoint: '/zones/a' };

t.test('ZFS of a server on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const cli = new Cli(t, [app.url]);
  const run = (...words: string[]) => cli.run('zfs', ...words);
  const last = () => [...agent.received.values()].at(-1);
  agent.answer = ({ name }) => {
    if (name === 'zfs_list_datasets') return { result: { datasets: [ONE] } };
    if (name === 'zfs_list_snapshots') return { result: { snapshots: [{ ...ONE, name: 'zones/a@one' }] } };
    if (name === 'zfs_list_pools') return { result: { pools: [{ name: 'zones', size: '10G', health: 'ONLINE' }] } };
    if (name === 'zfs_get_properties') return { result: { 'zones/a': { quota: '0' } } };
    return { result: {} };
  };

  await t.test('what it shows', async (t) => {
    t.match(await run('pools', 'scripted'), { code: 0, stdout: /^NAME +SIZE.*\nzones +10G.*ONLINE/ });
    t.match(await run('list', 'scripted'), { code: 0, stdout: /^NAME +TYPE.*\nzones\/a +filesystem/ });
    t.match(await run('list', 'scripted', 'zones/a', '--snapshots'), { code: 0, stdout: /\nzones\/a@one/ });
    t.match(await run('get', 'scripted', 'zones/a', 'quota', 'used'), { code: 0, stdout: /^quota +0\n$/ });
    t.same(last()?.params, { dataset: 'zones/a', properties: ['quota', 'used'] });
    t.same(JSON.parse((await run('list', 'scripted', '--json')).stdout), [ONE]);
  });

  await t.test('what it changes', async (t) => {
    const rows: [string[], string, object, string][] = [
      [['create', 'zones/b'], 'zfs_create_dataset', { dataset: 'zones/b' }, 'created zones/b'],
      [['snapshot', 'zones/b@one'], 'zfs_snapshot_dataset', { dataset: 'zones/b@one' }, 'took zones/b@one'],
      [['rollback', 'zones/b@one'], 'zfs_rollback_dataset', { dataset: 'zones/b@one' }, 'rolled back to zones/b@one'],
      [['destroy', 'zones/b@one'], 'zfs_destroy_dataset', { dataset: 'zones/b@one' }, 'destroyed zones/b@one'],
      [
        ['set', 'zones/b', 'quota=1G', 'org:note=a=b'],
        'zfs_set_properties',
        { dataset: 'zones/b', properties: { quota: '1G', 'org:note': 'a=b' } },
        'set properties of zones/b',
      ],
    ];
    for (const [[verb = '', ...words], name, params, done] of rows) {
      t.match(await run(verb, 'scripted', ...words), { code: 0, stdout: `${done}\n` });
      t.equal(last()?.name, name);
      t.same(last()?.params, params);
    }
    agent.answer = () => ({ error: { code: 'ZfsFailed', message: 'dataset is busy' } });
    const failed = { code: 1, stderr: /zones\/b could not be destroyed.*dataset is busy/s };
    t.match(await run('destroy', 'scripted', 'zones/b'), failed);
  });

  await t.test('wrong names are refused before anything is asked', async (t) => {
    const before = agent.received.size;
    for (const words of [
      ['create', 'scripted', 'zones/../b'],
      ['snapshot', 'scripted', 'zones/b'],
      ['destroy', 'scripted', 'zones/b@a,c'],
      ['get', 'scripted', 'zones/b', 'a,b'],
      ['set', 'scripted', 'zones/b', 'quota'],
      ['list', 'scripted', '--snapshots'],
    ])
      t.match(await run(...words), { code: 2, stdout: '' }, words.join(' '));
    t.equal(agent.received.size, before);
  });
});
