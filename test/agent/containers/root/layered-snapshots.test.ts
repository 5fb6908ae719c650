/** Copies of root file systems on a disk that tells only at the end that it is full. */
import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import t, { type Test } from 'tap';
import type { Container } from '../../../../lib/agent/containers/container.ts';
import { containerPaths } from '../../../../lib/agent/containers/linux/container-paths.ts';
import { LayeredRootFileSystems } from '../../../../lib/agent/containers/root/layered-root-file-systems.ts';
import { LayeredSnapshots } from '../../../../lib/agent/containers/root/layered-snapshots.ts';
import { archiveOf } from '../../../support/layer-archive.ts';
import { cannotMount, mountedFolder } from '../../../support/mounted-folder.ts';

const needs = { skip: cannotMount() };
const limits = { maxBytes: 1024 * 1024, maxEntries: 100, maxNameBytes: 10_000 };
const full = /No space left on device/;

/** A container that has stopped, with its layers copied. */
async function stoppedContainer(t: Test) {
  const place = await mountedFolder(t);
  const roots = await LayeredRootFileSystems.open({ directory: place, ids: { first: 200_000, count: 65_536 } });
  Object.assign(roots, { copyReason: 'because this test copies' });
  const layer = join(place, 'layer');
  await roots.unpack(Readable.from([archiveOf([{ path: 'file', contents: 'layer' }])]), layer, { limits });
  const { bundle, root: directory } = containerPaths(place, 'one');
  await mkdir(bundle, { recursive: true });
  const make = () => roots.make({ id: 'one', root: { layers: [layer], isReadOnly: false } }, directory);
  const snapshots = new LayeredSnapshots({ directory: place, mount: make, freeze: (_run, work) => work() });
  const container = { spec: { id: 'one' }, state: { name: 'created' }, changedAt: 0 } as Container;
  return { place, directory, make, snapshots, container, file: join(directory, 'root/file') };
}

/** The program `sync` says so until the test is over, or until the answer is called. */
async function fullDisk(t: Test, place: string): Promise<() => void> {
  const programs = join(place, 'programs');
  await mkdir(programs);
  await writeFile(join(programs, 'sync'), '#!/bin/sh\necho "sync: No space left on device" >&2\nexit 1\n');
  await chmod(join(programs, 'sync'), 0o755);
  const { PATH } = process.env;
  process.env.PATH = `${programs}:${PATH}`;
  const restore = () => {
    process.env.PATH = PATH;
  };
  t.teardown(restore);
  return restore;
}

t.test('a copied root file system does not exist before all of it is on disk', needs, async (t) => {
  const { place, directory, make, file } = await stoppedContainer(t);
  const restore = await fullDisk(t, place);
  await t.rejects(make(), full);
  t.same(await readdir(directory), []);
  restore();
  await make();
  t.equal(await readFile(file, 'utf8'), 'layer');
});

t.test('a snapshot that does not get on disk leaves nothing', needs, async (t) => {
  const { place, directory, make, snapshots, container } = await stoppedContainer(t);
  await make();
  await fullDisk(t, place);
  await t.rejects(snapshots.take(container, 'one'), full);
  t.same(await readdir(join(directory, 'snapshots')), []);
});

t.test('a rollback that does not get on disk changes nothing', needs, async (t) => {
  const { place, directory, make, snapshots, container, file } = await stoppedContainer(t);
  await make();
  await snapshots.take(container, 'one');
  await writeFile(file, 'changed');
  await fullDisk(t, place);
  await t.rejects(snapshots.restore(container, 'one'), full);
  t.equal(await readFile(file, 'utf8'), 'changed');
  t.same((await readdir(directory)).sort(), ['root', 'snapshots']);
});

t.test('the data of a snapshot is renamed away before it is removed', needs, async (t) => {
  const { directory, make, snapshots, container } = await stoppedContainer(t);
  await make();
  await snapshots.take(container, 'one');
  await snapshots.take(container, 'two');
  await snapshots.remove(container, 'one');
  await snapshots.remove(container, 'one');
  await mkdir(join(directory, 'snapshots/.removing/left'), { recursive: true });
  t.same(await snapshots.keepOnly(container, ['one', 'two']), ['two'], 'those that exist');
  t.same(await readdir(join(directory, 'snapshots')), ['two']);
});
