/** What a hostile server could send for `cnapi cp -r`. */
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, statSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { zstdCompressSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { Staging } from '../../../lib/cli/copy/staging.ts';
import { ArrivingTree } from '../../../lib/cli/copy/unpack-tree.ts';
import { archiveOf, gzipArchiveOf, type TestEntry } from '../../support/layer-archive.ts';

/** Copies the entries into `target`, as cp does. */
async function copied(target: string, entries: readonly TestEntry[]): Promise<void> {
  await using staging = await Staging.open(target, { kind: 'tree' });
  const archive = archiveOf([{ path: './', type: 'Directory' }, ...entries]);
  await pipeline(Readable.from([archive.subarray(0, 700), archive.subarray(700)]), new ArrivingTree(staging.place));
  await staging.settle();
}

function places(t: Test): { outside: string; target: string; parent: string } {
  const parent = t.testdir({ outside: {} });
  return { parent, outside: path.join(parent, 'outside'), target: path.join(parent, 'target') };
}

t.test('an archive that would write elsewhere is refused, and leaves nothing', async (t) => {
  const hostile: Record<string, (outside: string) => TestEntry[]> = {
    'a file in a link': (outside) => [
      { path: './a', type: 'SymbolicLink', target: outside },
      { path: './a/x', contents: 'x' },
    ],
    'a file in a link that a directory follows': (outside) => [
      { path: './a', type: 'SymbolicLink', target: outside },
      { path: './a/', type: 'Directory' },
      { path: './a/x', contents: 'x' },
    ],
    'a link in place of a directory': (outside) => [
      { path: './a/', type: 'Directory' },
      { path: './a', type: 'SymbolicLink', target: outside },
      { path: './a/x', contents: 'x' },
    ],
    'a file through a link': (outside) => [
      { path: './a', type: 'SymbolicLink', target: `${outside}/x` },
      { path: './a', contents: 'x' },
    ],
    'an absolute path': (outside) => [{ path: `${outside}/x`, contents: 'x' }],
    'a path with ..': () => [{ path: './../../outside/x', contents: 'x' }],
    'a path with .. in the middle': () => [
      { path: './a/', type: 'Directory' },
      { path: './a/../../../outside/x', contents: 'x' },
    ],
    'a hard link to a file elsewhere': () => [{ path: './a', type: 'Link', target: '/etc/passwd' }],
    'a hard link through a link': () => [
      { path: './a', type: 'SymbolicLink', target: '/etc' },
      { path: './b', type: 'Link', target: './a/passwd' },
    ],
    'a hard link to a link': () => [
      { path: './a', type: 'SymbolicLink', target: '/etc/passwd' },
      { path: './b', type: 'Link', target: './a' },
    ],
    'a device': () => [{ path: './null', type: 'CharacterDevice' }],
    'a named pipe': () => [{ path: './pipe', type: 'FIFO' }],
    'a file in no directory': () => [{ path: './a/b', contents: 'x' }],
    'a file in a file': () => [
      { path: './a', contents: 'x' },
      { path: './a/b', contents: 'x' },
    ],
  };
  for (const [name, entriesOf] of Object.entries(hostile))
    await t.test(name, async (t) => {
      const { parent, outside, target } = places(t);
      const isOutside = /\.\.|absolute/.test(name);
      const said = isOutside ? /outside of the directory$/ : /nothing was copied: the server has sent/;
      await t.rejects(copied(target, entriesOf(outside)), { message: said });
      t.strictSame(readdirSync(parent), ['outside']);
      t.strictSame(readdirSync(outside), []);
    });
  await t.test('something other than an archive', async (t) => {
    const { parent, target } = places(t);
    const unpack = async () => {
      await using staging = await Staging.open(target, { kind: 'tree' });
      await pipeline(Readable.from([Buffer.alloc(4096, 'x')]), new ArrivingTree(staging.place));
    };
    await t.rejects(unpack(), { message: /an archive that cannot be read/ });
    t.strictSame(readdirSync(parent), ['outside']);
  });
});

t.test('an archive without its end is a part of one', async (t) => {
  const archive = archiveOf([
    { path: './', type: 'Directory' },
    { path: './a', contents: 'a' },
    { path: './b', contents: 'b' },
  ]);
  const [block, end] = [512, archive.length - 1024];
  for (const length of [end - 2 * block, end, end + block])
    await t.test(`${length} of ${archive.length} bytes`, async (t) => {
      const { target } = places(t);
      const unpack = async () => {
        await using staging = await Staging.open(target, { kind: 'tree' });
        await pipeline(Readable.from([archive.subarray(0, length)]), new ArrivingTree(staging.place));
      };
      await t.rejects(unpack(), { message: /the server has sent only a part of the directory$/ });
      t.notOk(existsSync(target));
    });
});

t.test('links are copied, and no link of the target is followed', async (t) => {
  const { outside, target } = places(t);
  mkdirSync(target);
  symlinkSync(path.join(outside, 'file'), path.join(target, 'file'));
  await copied(target, [
    { path: './file', contents: 'new', mode: 0o4755 },
    { path: './link', type: 'SymbolicLink', target: '/etc/passwd' },
    { path: './again', type: 'Link', target: './file' },
    { path: './locked/', type: 'Directory', mode: 0o500 },
    { path: './locked/x', contents: 'x' },
  ]);
  t.strictSame(readdirSync(outside), [], 'the link was replaced');
  t.equal(readFileSync(path.join(target, 'file'), 'utf8'), 'new');
  t.equal(statSync(path.join(target, 'file')).mode & 0o7000, 0, 'it does not run as its owner');
  t.equal(readlinkSync(path.join(target, 'link')), '/etc/passwd');
  t.equal(statSync(path.join(target, 'again')).ino, statSync(path.join(target, 'file')).ino);
  t.equal(statSync(path.join(target, 'locked')).mode & 0o777, 0o500);
});

t.test('what does not fit into the target changes nothing', async (t) => {
  const rows: Record<string, { there(target: string, outside: string): void; error: RegExp }> = {
    'a link where a directory arrives': {
      there: (target, outside) => symlinkSync(outside, path.join(target, 'z')),
      error: /z is not a directory; nothing was changed/,
    },
    'a directory where a file arrives': {
      there: (target) => mkdirSync(path.join(target, 'z/x'), { recursive: true }),
      error: /z\/x is a directory; nothing was changed/,
    },
  };
  for (const [name, { there, error }] of Object.entries(rows))
    await t.test(name, async (t) => {
      const { outside, target } = places(t);
      mkdirSync(target);
      there(target, outside);
      const before = readdirSync(target);
      const entries: TestEntry[] = [
        { path: './a', contents: 'a' },
        { path: './z/', type: 'Directory' },
        { path: './z/x', contents: 'x' },
      ];
      await t.rejects(copied(target, entries), { message: error });
      t.strictSame(readdirSync(target), before);
      t.strictSame(readdirSync(outside), []);
    });
  await t.test('a file in place of the target', async (t) => {
    const { target } = places(t);
    const file = path.join(t.testdir({ file: '' }), 'file');
    await t.rejects(copied(path.join(file, 'x'), []), { message: /file is not a directory/ });
    t.notOk(existsSync(target));
  });
});

t.test('an archive that would take much memory is refused, and leaves nothing', async (t) => {
  const [{ parent, target }, entry] = [places(t), (name: string): TestEntry => ({ path: `./${name}/` })];
  const unpack = async (archive: Buffer) => {
    await using staging = await Staging.open(target, { kind: 'tree' });
    const tree = new ArrivingTree(staging.place, { entries: 3, nameChars: 20 });
    await pipeline(Readable.from([archive.subarray(0, 1), archive.subarray(1)]), tree);
  };
  const root: TestEntry = { path: './' };
  const fits = [root, entry('a'), entry('b')];
  await unpack(archiveOf(fits));
  await t.rejects(unpack(archiveOf([...fits, root])), { message: /more than 3 files and directories/ });
  await t.rejects(unpack(archiveOf([root, entry('x'.repeat(21))])), { message: /long names/ });
  await t.rejects(unpack(gzipArchiveOf(fits)), { message: /has sent a compressed archive/ });
  await t.rejects(unpack(zstdCompressSync(archiveOf(fits))), { message: /cannot be read/ });
  t.strictSame(readdirSync(parent), ['outside']);
});
