import { execFile } from 'node:child_process';
import { lstat, mkdir, open, readdir, readFile, readlink, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { LayeredRootFileSystems } from '../../../../lib/agent/containers/root/layered-root-file-systems.ts';
import { busyboxLayer, upperLayer } from '../../../support/busybox-layer.ts';
import { archiveOf, type TestEntry } from '../../../support/layer-archive.ts';
import { cannotMount, mountedFolder, mountsBelow, smallDisk } from '../../../support/mounted-folder.ts';

const run = promisify(execFile);
const MIB = 1024 * 1024;
const limits = { maxBytes: 64 * MIB, maxEntries: 10_000, maxNameBytes: 1_000_000 };
const ids = { first: 200_000, count: 65_536 };
const needs = { skip: cannotMount('busybox', 'chroot') };

type Kind = 'overlay' | 'copy';

/** An agent that mounts, or one that believes it cannot. */
async function agent(t: Test, kind: Kind = 'overlay', folder?: string) {
  const place = folder ?? (await mountedFolder(t));
  const roots = await LayeredRootFileSystems.open({ directory: join(place, 'agent'), ids });
  t.equal(roots.copyReason, undefined, 'overlay works here');
  if (kind === 'copy') Object.assign(roots, { copyReason: 'because this test copies' });
  const layers: string[] = [];
  const directory = join(place, 'con,tai:ner');
  return {
    roots,
    place,
    directory,
    root: join(directory, 'root'),
    /** On top of those before. */
    async layer(archive: Buffer | TestEntry[]) {
      const name = join(place, `layer,${layers.length}:x`);
      await roots.unpack(Readable.from([Buffer.isBuffer(archive) ? archive : archiveOf(archive)]), name, { limits });
      layers.push(name);
    },
    make: () => roots.make({ id: 'one', root: { layers, isReadOnly: false } }, directory),
    remove: () => roots.remove(directory),
  };
}

const link = (path: string, target: string): TestEntry => ({ path, type: 'SymbolicLink', target });
const text = (...path: string[]) => readFile(join(...path), 'utf8');
const owner = async (path: string) => {
  const { uid, gid, mode } = await lstat(path);
  return [uid, gid, (mode & 0o7777).toString(8)];
};

for (const kind of ['overlay', 'copy'] as const) {
  t.test(`${kind}: the upper layer changes and hides what the lower has`, needs, async (t) => {
    const { layer, make, root, remove, directory } = await agent(t, kind);
    await layer(await busyboxLayer());
    await layer(upperLayer());
    t.equal(await make(), root);
    t.equal((await mountsBelow(directory)).length, kind === 'overlay' ? 1 : 0);
    t.equal(await text(root, 'etc/release'), 'upper\n');
    t.same(await readdir(join(root, 'opt')), ['new']);
    t.notOk((await readdir(join(root, 'etc'))).includes('motd'));
    t.equal((await run('chroot', [root, '/bin/cat', '/etc/release'])).stdout, 'upper\n', 'its programs run');
    t.same(await owner(root), [200_000, 200_000, '755']);
    t.same(await owner(join(root, 'home/guest')), [201_000, 201_000, '755']);
    await remove();
    t.equal(await lstat(directory).catch(() => 'gone'), 'gone');
    await remove();
  });

  t.test(`${kind}: what the container changes stays, and its layers do not change`, needs, async (t) => {
    const { layer, make, root, place } = await agent(t, kind);
    await layer([{ path: 'a', contents: 'image' }, { path: 'b' }]);
    await make();
    await writeFile(join(root, 'a'), 'container');
    await rm(join(root, 'b'));
    for (const point of await mountsBelow(place)) await run('umount', [point]);
    t.equal(await make(), root, 'as after a restart of the machine');
    t.equal(await make(), root, 'repeated while it is there');
    t.ok((await mountsBelow(place)).length <= 1, 'it is mounted once');
    t.equal(await text(root, 'a'), 'container');
    t.notOk((await readdir(root)).includes('b'));
    t.equal(await text(place, 'layer,0:x/root/a'), 'image');
  });

  t.test(`${kind}: kinds of files that change between layers lead nowhere else`, needs, async (t) => {
    const { layer, make, root, place } = await agent(t, kind);
    const outside = join(place, 'outside');
    await mkdir(outside);
    await writeFile(join(outside, 'file'), 'kept');
    const other = link('link', outside);
    await layer([
      other,
      link('file', join(outside, 'file')),
      { path: 'd/e/f' },
      link('x', outside),
      link('y', outside),
    ]);
    await layer([
      { path: 'link/file', contents: 'inside' },
      { path: 'file', contents: 'inside' },
      { path: 'd', contents: 'now a file' },
      { path: 'x/.wh.file' },
      { path: 'y/.wh..wh..opq' },
    ]);
    await layer([{ path: 'link/.wh.file' }, link('d', 'file')]);
    await make();
    t.equal(await text(outside, 'file'), 'kept');
    t.same(await readdir(join(root, 'link')), []);
    t.equal(await text(root, 'file'), 'inside');
    t.equal(await readlink(join(root, 'd')), 'file');
  });

  t.test(`${kind}: nothing is seen below an opaque root`, needs, async (t) => {
    const { layer, make, root } = await agent(t, kind);
    await layer([{ path: 'old' }]);
    await layer([{ path: '.wh..wh..opq' }, { path: 'new' }]);
    await layer([{ path: 'newest' }]);
    await make();
    t.same(await readdir(root), ['dev', 'etc', 'new', 'newest', 'proc', 'sys', 'tmp']);
  });
}

t.test('a disk that is too small for a copy is named, and what was begun is removed', needs, async (t) => {
  const { layer, make, remove, place, directory } = await agent(t, 'copy', await smallDisk(t, 3 * MIB));
  await layer([{ path: 'a', contents: Buffer.alloc(2 * MIB) }]);
  await t.rejects(make(), { name: 'ContainerError', message: /No space left/ });
  t.same(await readdir(directory), []);
  await remove();
  t.same((await readdir(place)).sort(), ['agent', 'layer,0:x']);
});

t.test('what the runtime needs exists, and no link of the image is followed', needs, async (t) => {
  const { layer, make, root, place } = await agent(t);
  const outside = join(place, 'outside');
  await layer([{ path: 'etc/hosts', contents: 'image' }, link('etc/resolv.conf', outside), link('tmp', outside)]);
  await make();
  t.equal(await lstat(outside).catch(() => 'nothing'), 'nothing');
  t.equal(await readlink(join(root, 'tmp')), outside);
  t.equal(await text(root, 'etc/hosts'), 'image');
  t.same(await owner(join(root, 'etc/resolv.conf')), [200_000, 200_000, '644']);
  t.same(await owner(join(root, 'etc/hostname')), [200_000, 200_000, '644']);
  for (const name of ['proc', 'sys', 'dev']) t.same(await owner(join(root, name)), [200_000, 200_000, '755']);
});

t.test('an image whose /proc or /etc/hosts cannot be mounted on is refused', needs, async (t) => {
  for (const [entry, message] of [
    [link('proc', '/etc'), /\/proc of the image is not a directory/],
    [link('etc', '/tmp'), /\/etc of the image is not a directory/],
    [{ path: 'dev' }, /\/dev of the image is not a directory/],
    [{ path: 'etc/hosts/x' }, /directory at \/etc\/hosts/],
  ] as const) {
    const { layer, make, remove, place } = await agent(t);
    await layer([entry]);
    await t.rejects(make(), { name: 'ContainerError', message });
    await remove();
    t.same(await mountsBelow(place), []);
  }
});

t.test('a removal detaches what is in use, and keeps what is mounted elsewhere in it', needs, async (t) => {
  const { layer, make, root, remove, place, directory } = await agent(t);
  await layer([{ path: 'a', contents: 'text' }, { path: 'd/' }]);
  await make();
  const outside = join(place, 'outside');
  await mkdir(outside);
  await writeFile(join(outside, 'file'), 'kept');
  await symlink(outside, join(root, 'link'));
  await run('mount', ['--bind', outside, join(root, 'd')]);
  const foreign = join(directory, 'foreign');
  await mkdir(foreign);
  await run('mount', ['--bind', outside, foreign]);
  const busy = await open(join(root, 'a'));
  await t.rejects(remove(), { name: 'ContainerError', message: /is mounted at .*foreign; unmount it/ });
  t.equal(await busy.readFile('utf8'), 'text');
  await run('umount', [foreign]);
  await remove();
  await busy.close();
  t.same(await mountsBelow(place), []);
  t.equal(await lstat(directory).catch(() => 'gone'), 'gone');
  t.equal(await text(outside, 'file'), 'kept');
});

t.test('a removal does not follow a link in the place of the directory or of the mount point', needs, async (t) => {
  const { roots, place } = await agent(t);
  const other = join(place, 'other');
  await mkdir(join(other, 'root'), { recursive: true });
  await run('mount', ['-t', 'tmpfs', 'tmpfs', join(other, 'root')]);
  await symlink(other, join(place, 'link'));
  await roots.remove(join(place, 'link'));
  await mkdir(join(place, 'one'));
  await symlink(join(other, 'root'), join(place, 'one/root'));
  await roots.remove(join(place, 'one'));
  t.same(await mountsBelow(place), [join(other, 'root')]);
  t.same((await readdir(place)).sort(), ['agent', 'other']);
});

t.test('a container cannot make its own removal fail by paths that are too long', needs, async (t) => {
  const { layer, make, root, remove, directory } = await agent(t);
  await layer([{ path: 'a' }]);
  await make();
  const half = Array.from({ length: 12 }, () => 'x'.repeat(250)).join('/');
  for (const name of ['upper', 'lower']) await mkdir(join(root, name, half), { recursive: true });
  await rename(join(root, 'lower'), join(root, 'upper', half, 'lower'));
  await remove();
  t.equal(await lstat(directory).catch(() => 'gone'), 'gone');
});

t.test('overlay takes 500 layers; more are refused', needs, async (t) => {
  const { roots, place, directory, layer, root } = await agent(t);
  await layer([{ path: 'a' }]);
  const layers = [join(place, 'layer,0:x')];
  for (let n = 1; n <= 500; n++) {
    const copy = join(place, `copy ${n}`);
    await mkdir(join(copy, 'root'), { recursive: true });
    await writeFile(join(copy, 'layer.json'), await text(place, 'layer,0:x/layer.json'));
    layers.push(copy);
  }
  await writeFile(join(place, 'copy 499/root/last'), '');
  const make = (count: number) =>
    roots.make({ id: 'one', root: { layers: layers.slice(0, count), isReadOnly: false } }, directory);
  await t.rejects(make(501), { name: 'ContainerError', message: /501 layers, and overlay takes 500/ });
  await make(500);
  t.ok((await readdir(root)).includes('last'));
});

t.test('layers that are missing are named', needs, async (t) => {
  const { roots, directory, place } = await agent(t);
  const make = (layers: string[]) => roots.make({ id: 'one', root: { layers, isReadOnly: false } }, directory);
  await t.rejects(make([]), { name: 'ContainerError', message: /no layers/ });
  await t.rejects(make([join(place, 'none')]), {
    name: 'ContainerError',
    message: /none is not an unpacked layer.*unpack it again/,
  });
  t.equal(await lstat(directory).catch(() => 'nothing'), 'nothing');
});
