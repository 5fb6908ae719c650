/** The agent's ZFS with a real one. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { processFacts } from '../../../lib/agent/machine/proc.ts';
import { Zfs } from '../../../lib/agent/zfs/zfs.ts';
import { until } from '../../support/until.ts';
import { lacksZfs, startZfsFuse, type ZfsFuse } from '../../support/zfs-fuse.ts';

const skip = lacksZfs();
const { signal } = new AbortController();
const VM = 'c1a7e9f0-0000-4000-8000-000000000001';

const open = ({ programs }: ZfsFuse, use: { allowed?: string[]; directories?: string[] } = {}) =>
  new Zfs({
    programs,
    allowed: use.allowed ?? ['tank'],
    vmUuids: () => [VM],
    directories: () => use.directories ?? [],
  });

t.test('datasets, snapshots and properties of a real pool', { skip }, async (t) => {
  const real = await startZfsFuse(t);
  const zfs = open(real);
  const names = async (list: Promise<Record<string, string>[]>) => (await list).map(({ name }) => name);
  const fails = (t: Test, work: Promise<unknown>, code: string, message: RegExp) => t.rejects(work, { code, message });

  await t.test('a pool', async (t) => {
    const [pool] = await zfs.listPools(signal);
    t.match(pool, { name: 'tank', size: /^\d+M$/, allocated: /^\d/, free: /M$/, cap: '0%', health: 'ONLINE' });
  });

  await t.test('file systems are created, listed and destroyed', async (t) => {
    for (const name of ['tank/a', 'tank/a/b c', 'tank/z']) await zfs.create(name, signal);
    t.same(await names(zfs.listDatasets(undefined, signal)), ['tank', 'tank/a', 'tank/a/b c', 'tank/z']);
    t.same(await names(zfs.listDatasets('tank/a', signal)), ['tank/a', 'tank/a/b c']);
    const [a] = await zfs.listDatasets('tank/a', signal);
    t.match(a, { type: 'filesystem', used: /K$/, avail: /M$/, refer: /K$/, mountpoint: 'none' });
    await fails(t, zfs.create('tank/a', signal), 'ZfsFailed', /^cannot create 'tank\/a': dataset already exists$/);
    await fails(t, zfs.create('tank/no/such', signal), 'ZfsFailed', /parent does not exist/);
    await fails(t, zfs.destroy('tank/a', signal), 'ZfsFailed', /has children/);
    await zfs.destroy('tank/a/b c', signal);
    await zfs.destroy('tank/z', signal);
    await fails(t, zfs.destroy('tank/z', signal), 'ZfsFailed', /dataset does not exist/);
    t.same(await names(zfs.listDatasets(undefined, signal)), ['tank', 'tank/a']);
  });

  await t.test('snapshots are taken, listed, cloned and destroyed', async (t) => {
    await zfs.create('tank/a/below', signal);
    for (const name of ['tank/a@one', 'tank/a@two', 'tank/a/below@one']) await zfs.snapshot(name, signal);
    t.same(await names(zfs.listSnapshots('tank/a', signal)), ['tank/a@one', 'tank/a@two'], 'not those below it');
    t.equal((await zfs.listSnapshots(undefined, signal)).length, 3);
    await fails(t, zfs.rollback('tank/a@one', signal), 'ZfsFailed', /more recent snapshots exist/);
    await zfs.clone('tank/a@one', 'tank/copy', signal);
    await fails(t, zfs.destroy('tank/a@one', signal), 'ZfsFailed', /dependent clones/);
    await zfs.destroy('tank/copy', signal);
    await zfs.destroy('tank/a@two', signal);
    t.same(await names(zfs.listSnapshots('tank/a', signal)), ['tank/a@one']);
  });

  await t.test('a rollback takes the files back', async (t) => {
    const files = join(real.directory, 'files');
    await zfs.create('tank/files', signal);
    await real.run('zfs', 'set', `mountpoint=${files}`, 'tank/files');
    await real.inside(`echo old >${files}/text`);
    await zfs.snapshot('tank/files@old', signal);
    await real.inside(`echo new >${files}/text`);
    await zfs.rollback('tank/files@old', signal);
    t.equal(await real.inside(`cat ${files}/text`), 'old\n');
  });

  await t.test('properties are set and read, with exact numbers', async (t) => {
    await zfs.set('tank/a', { quota: '10M', 'org:note': 'two words = one, -o x' }, signal);
    t.same(await zfs.properties({ dataset: 'tank/a', properties: ['quota', 'org:note'] }, signal), {
      'tank/a': { quota: String(10 * 1024 * 1024), 'org:note': 'two words = one, -o x' },
    });
    const all = await zfs.properties({}, signal);
    t.ok(Object.keys(all['tank/a'] ?? {}).length > 40, 'all of them');
    t.match(all, { tank: { type: 'filesystem' } });
    await fails(t, zfs.set('tank/a', { quota: 'much' }, signal), 'ZfsFailed', /bad numeric value 'much'/);
    await fails(t, zfs.properties({ properties: ['nosuch'] }, signal), 'ZfsFailed', /invalid property 'nosuch'$/);
  });

  await t.test('names that ZFS or its programs would take for something else are refused', async (t) => {
    for (const name of [
      '-r',
      '-r tank/a',
      'tank/a@one,two',
      'tank/a@one%two',
      'tank/%recv',
      'tank//a',
      'tank/../a',
      '',
    ])
      await fails(t, zfs.destroy(name, signal), 'InvalidParameters', /is not the name/);
    t.ok(await real.run('zfs', 'list', 'tank/a'), 'it is there');
    for (const name of ['-r', 'quota,used', 'Quota', 'a b'])
      await fails(t, zfs.properties({ properties: [name] }, signal), 'InvalidParameters', /is not the name/);
    await fails(t, zfs.set('tank/a', { 'org:note': 'a\nb' }, signal), 'InvalidParameters', /control character/);
  });

  await t.test('what is not allowed, or is in use, is not changed', async (t) => {
    const inside = open(real, { allowed: ['tank/a'], directories: ['/srv/below/data'] });
    await real.run('zfs', 'set', 'canmount=off', 'tank/a/below');
    await real.run('zfs', 'set', 'mountpoint=/srv/below', 'tank/a/below');
    const refused = (work: Promise<unknown>, message: RegExp) => fails(t, work, 'DatasetNotChangeable', message);
    await refused(open(real, { allowed: [] }).create('tank/x', signal), /without --zfs/);
    await refused(inside.create('tank/x', signal), /only datasets within tank\/a/);
    await refused(inside.destroy('tank/a', signal), /named by --zfs/);
    await refused(zfs.destroy('tank', signal), /root dataset of a pool/);
    await refused(inside.destroy('tank/a/below', signal), /is in use: it has \/srv\/below\/data/);
    await refused(inside.rollback('tank/a/below@one', signal), /is in use/);
    await refused(zfs.rename('tank/a', 'tank', signal), /root dataset of a pool/);
    await refused(zfs.set('tank/a', { mountpoint: '/etc' }, signal), /mountpoint is not changed/);
    await zfs.create(`tank/${VM}`, signal);
    await refused(zfs.destroy(`tank/${VM}`, signal), /belongs to VM/);
    await inside.snapshot('tank/a/below@used', signal);
    await inside.destroy('tank/a/below@used', signal);
    t.same(await names(zfs.listDatasets('tank/a', signal)), ['tank/a', 'tank/a/below']);
  });

  await t.test('a dataset is renamed', async (t) => {
    await zfs.create('tank/old', signal);
    await zfs.rename('tank/old', 'tank/new', signal);
    t.same(await names(zfs.listDatasets('tank/new', signal)), ['tank/new']);
  });
});

t.test('a program that hangs ends with its task, and output without end is not kept', async (t) => {
  const directory = t.testdir();
  const script = async (name: string, text: string) => {
    await writeFile(join(directory, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    return join(directory, name);
  };
  const zpool = await script('zpool', 'exec yes "$*"');
  const zfs = await script('zfs', `echo $$ >${directory}/pid; exec sleep 1000`);
  const hanging = new Zfs({ programs: { zfs, zpool }, allowed: [], vmUuids: () => [], directories: () => [] });
  await t.rejects(hanging.listPools(signal), { code: 'ZfsOutputTooLarge', message: /longer than an answer/ });
  const ending = new AbortController();
  const listed = hanging.listDatasets(undefined, ending.signal);
  const pid = await until(
    async () => Number(await readFile(join(directory, 'pid'), 'utf8').catch(() => '')) || undefined,
    'the program runs',
  );
  ending.abort(new Error('the task is over'));
  await t.rejects(listed, { message: 'the task is over' });
  await until(async () => ['Z', undefined].includes((await processFacts(pid))?.state), 'the program is gone');
});
