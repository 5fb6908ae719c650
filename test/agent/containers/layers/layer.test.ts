import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { lstat, mkdir, readdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { LayerError } from '../../../../lib/agent/containers/layers/layer-error.ts';
import { LayeredRootFileSystems } from '../../../../lib/agent/containers/root/layered-root-file-systems.ts';
import { archiveOf, gzipArchiveOf, type TestEntry } from '../../../support/layer-archive.ts';
import { cannotMount, mountedFolder, smallDisk } from '../../../support/mounted-folder.ts';
import { until } from '../../../support/until.ts';

const MIB = 1024 * 1024;
const limits = { maxBytes: 64 * MIB, maxEntries: 1000, maxNameBytes: 100_000 };
const ids = { first: 200_000, count: 65_536 };
const needs = { skip: cannotMount() };

/** An agent's directory: `layers` is where it unpacks. */
async function agentIn(folder: string) {
  const roots = await LayeredRootFileSystems.open({ directory: join(folder, 'agent'), ids });
  const layers = join(folder, 'layers');
  await mkdir(layers);
  const unpack = (archive: Buffer, name = 'one', options = {}) =>
    roots.unpack(Readable.from([archive]), join(layers, name), { limits, ...options });
  return { roots, layers, unpack, left: () => readdir(layers) };
}

const agent = async (t: Test) => agentIn(await mountedFolder(t));

async function facts(path: string) {
  const { mode, uid, gid, mtimeMs, nlink } = await lstat(path);
  return { mode: (mode & 0o7777).toString(8), uid, gid, mtime: mtimeMs / 1000, nlink };
}

t.test('a layer has the files of its archive, with shifted owners', needs, async (t) => {
  const { layers, unpack } = await agent(t);
  await unpack(
    archiveOf([
      { path: './', mode: 0o750, uid: 5, gid: 6, mtime: 1 },
      { path: 'a/', mode: 0o555, mtime: 2 },
      { path: 'a/empty' },
      { path: 'a/file', contents: 'text', mode: 0o4755, uid: 1000, gid: 65_535, pax: { mtime: '1234.5' } },
      { path: 'hard', type: 'Link', target: 'a/file' },
      { path: 'soft', type: 'SymbolicLink', target: '/etc/passwd', uid: 9, gid: 10, mtime: 3 },
      { path: 'un/named', mtime: -5 },
      { path: 'large', contents: Buffer.alloc(3 * MIB, 'x') },
      { path: 'large', contents: 'replaced' },
    ]),
  );
  const root = join(layers, 'one/root');
  t.same(await facts(root), { mode: '750', uid: 200_005, gid: 200_006, mtime: 1, nlink: 4 });
  t.same(await facts(join(root, 'a')), { mode: '555', uid: 200_000, gid: 200_000, mtime: 2, nlink: 2 });
  const file = { mode: '4755', uid: 201_000, gid: 265_535, mtime: 1234.5, nlink: 2 };
  t.same(await facts(join(root, 'a/file')), file);
  t.same(await facts(join(root, 'hard')), file);
  t.same(await facts(join(root, 'soft')), { mode: '777', uid: 200_009, gid: 200_010, mtime: 3, nlink: 1 });
  t.same(await facts(join(root, 'un')), { mode: '755', uid: 200_000, gid: 200_000, mtime: 0, nlink: 2 });
  t.equal((await facts(join(root, 'un/named'))).mtime, 0, 'a time that is none');
  t.equal(await readlink(join(root, 'soft')), '/etc/passwd');
  t.equal(await readFile(join(root, 'hard'), 'utf8'), 'text');
  t.equal(await readFile(join(root, 'large'), 'utf8'), 'replaced');
  t.equal(await readFile(join(root, 'a/empty'), 'utf8'), '');
});

t.test('the digest is of the bytes that were received', needs, async (t) => {
  const { unpack } = await agent(t);
  const archive = archiveOf([{ path: 'a', contents: 'text' }]);
  const bytes = archive.length;
  const digest = (of: Buffer) => `sha256:${createHash('sha256').update(of).digest('hex')}`;
  t.same(await unpack(archive, 'plain'), { digest: digest(archive), bytes });
  const zipped = gzipSync(archive);
  t.same(await unpack(zipped, 'gzip'), { digest: digest(zipped), bytes });
  const padded = Buffer.concat([archive, Buffer.alloc(300_000)]);
  t.same(await unpack(padded, 'padded'), { digest: digest(padded), bytes: padded.length });
  const members = Buffer.concat([gzipSync(archive.subarray(0, 700)), gzipSync(archive.subarray(700))]);
  t.same(await unpack(members, 'members'), { digest: digest(members), bytes });
});

t.test('what a layer hides is marked for overlay, and listed', needs, async (t) => {
  const { layers, unpack } = await agent(t);
  await unpack(
    archiveOf([
      { path: 'a/.wh.gone' },
      { path: 'a/.wh.kept' },
      { path: 'a/kept' },
      { path: 'b/.wh.directory' },
      { path: 'b/directory/x' },
      { path: 'c/', mode: 0o700, uid: 3, mtime: 7 },
      { path: 'c/.wh..wh..opq' },
      { path: 'ü\n x/.wh.-é' },
    ]),
  );
  const { removed, opaque } = JSON.parse(await readFile(join(layers, 'one/layer.json'), 'utf8'));
  t.same(removed, ['a/gone', 'ü\n x/-é']);
  t.same(opaque, ['c', 'b/directory']);
  const root = join(layers, 'one/root');
  for (const path of removed) {
    const stats = await lstat(join(root, path));
    t.ok(stats.isCharacterDevice() && stats.rdev === 0, path);
  }
  t.ok((await lstat(join(root, 'a/kept'))).isFile());
  t.same(await facts(join(root, 'c')), { mode: '700', uid: 200_003, gid: 200_000, mtime: 7, nlink: 2 });
});

const big = Buffer.alloc(2 * MIB);
const refused: [string, Buffer, RegExp][] = [
  ['a path that leaves the root', archiveOf([{ path: 'a' }, { path: '../b' }]), /"\.\."/],
  [
    'an entry below a link',
    archiveOf([{ path: 'a', type: 'SymbolicLink', target: '/tmp' }, { path: 'a/b' }]),
    /not a directory/,
  ],
  ['a device', archiveOf([{ path: 'a' }, { path: 'sda', type: 'BlockDevice' }]), /device/],
  ['a cut archive', archiveOf([{ path: 'a' }, { path: 'b', contents: big }]).subarray(0, -big.length / 2), /cut off/],
  ['cut compression', gzipArchiveOf([{ path: 'a' }]).subarray(0, -20), /decompressed/],
  [
    'damaged compression',
    Buffer.from(gzipArchiveOf([{ path: 'a' }]).map((byte, at) => (at === 30 ? byte ^ 255 : byte))),
    /decompressed/,
  ],
  [
    'data after the compression',
    Buffer.concat([gzipArchiveOf([{ path: 'a' }]), Buffer.from('more data')]),
    /decompressed/,
  ],
  ['an archive that is compressed twice', gzipSync(gzipArchiveOf([{ path: 'a' }])), /cut off/],
  [
    'more unpacked bytes than the limit',
    gzipArchiveOf([{ path: 'a', contents: Buffer.alloc(65 * MIB) }]),
    /more than 67108864 bytes/,
  ],
  ['zeros without end', gzipSync(Buffer.concat([archiveOf([]), Buffer.alloc(65 * MIB)])), /more than 67108864 bytes/],
  [
    'more entries than the limit',
    archiveOf(Array.from({ length: 1001 }, (_, n) => ({ path: `${n}` }))),
    /1000 entries/,
  ],
  [
    'a path that is too long together with the root',
    archiveOf([{ path: `${`${'x'.repeat(250)}/`.repeat(16)}${'y'.repeat(79)}` }]),
    /too long/,
  ],
];

for (const [name, archive, message] of refused)
  t.test(`refused as a whole: ${name}`, needs, async (t) => {
    const { unpack, left } = await agent(t);
    await t.rejects(unpack(archive), { name: 'LayerError', message });
    t.same(await left(), []);
  });

t.test('a layer that exists is left as it is', needs, async (t) => {
  const { layers, unpack, left } = await agent(t);
  await unpack(archiveOf([{ path: 'a' }]));
  await t.rejects(unpack(archiveOf([{ path: 'b' }])), { name: 'ContainerError', message: /exists already/ });
  t.same([await left(), await readdir(join(layers, 'one/root'))], [['one'], ['a']]);
});

t.test('a layer is unpacked once at a time, and an abort leaves nothing', needs, async (t) => {
  const { roots, layers, unpack, left } = await agent(t);
  const stalled = new PassThrough();
  stalled.write(archiveOf([{ path: 'a', contents: 'text' }]).subarray(0, 1600));
  const abort = new AbortController();
  const unpacking = roots.unpack(stalled, join(layers, 'one'), { limits, signal: abort.signal });
  await until(() => lstat(join(layers, 'one.unpacking/root')).catch(() => false));
  await t.rejects(unpack(archiveOf([{ path: 'b' }])), { message: /being unpacked already/ });
  abort.abort();
  await t.rejects(unpacking, { name: 'ContainerError', message: /aborted/ });
  t.same([await left(), stalled.destroyed], [[], true]);
});

t.test('a stream that breaks leaves nothing', needs, async (t) => {
  const { roots, layers, left } = await agent(t);
  for (const archive of [archiveOf([{ path: 'a', contents: big }]), gzipArchiveOf([{ path: 'a', contents: big }])]) {
    const broken = Readable.from(
      (async function* () {
        yield archive.subarray(0, 1500);
        throw new Error('connection lost');
      })(),
    );
    const unpacking = roots.unpack(broken, join(layers, 'one'), { limits });
    await t.rejects(unpacking, { name: 'ContainerError', message: /connection lost/ });
    t.same(await left(), []);
  }
});

t.test('a full disk is named, and nothing is left', needs, async (t) => {
  const { unpack, left } = await agentIn(await smallDisk(t, 2 * MIB));
  const small: TestEntry[] = Array.from({ length: 900 }, (_, n) => ({ path: `f${n}`, contents: Buffer.alloc(3000) }));
  for (const archive of [archiveOf([{ path: 'a', contents: Buffer.alloc(4 * MIB) }]), archiveOf(small)]) {
    await t.rejects(unpack(archive), { name: 'ContainerError', message: /has no room/ });
    t.same(await left(), []);
  }
  await unpack(archiveOf([{ path: 'a' }]));
});

t.test('bytes that are refused while a layer is unpacked end it, and nothing is left', needs, async (t) => {
  const { unpack, left } = await agent(t);
  const reserved: number[] = [];
  const refusal = new Error('no space is left to reserve');
  const onBytes = (bytes: number) => {
    reserved.push(bytes);
    if (bytes > MIB) throw refusal;
  };
  const archive = gzipArchiveOf([{ path: 'large', contents: Buffer.alloc(5 * MIB) }]);
  await t.rejects(unpack(archive, 'one', { limits: { ...limits, onBytes } }), { cause: refusal });
  t.ok(reserved.length > 1 && (reserved.at(-1) ?? 0) < 2 * MIB, 'it ends with the first bytes that are refused');
  t.same(await left(), []);
});

t.test('an unpack that is killed leaves no layer, and the next one completes', needs, async (t) => {
  const { roots, layers, unpack, left } = await agent(t);
  const archive = archiveOf([{ path: 'first' }, { path: 'second', contents: big }]);
  const child = spawn(process.execPath, [join(import.meta.dirname, 'unpack-child.ts'), join(layers, 'one')], {
    stdio: ['pipe', 'inherit', 'inherit'],
  });
  child.stdin.on('error', () => undefined);
  child.stdin.write(archive.subarray(0, MIB));
  await until(() => lstat(join(layers, 'one.unpacking/root/first')).catch(() => false));
  child.kill('SIGKILL');
  await once(child, 'close');
  t.same(await left(), ['one.unpacking']);
  await unpack(archive);
  t.same(await left(), ['one']);
  await mkdir(join(layers, 'two.unpacking'));
  await roots.removeUnfinished(layers);
  t.same(await left(), ['one']);
});

t.test('1,000 random archives write nothing outside, and leave nothing half done', needs, async (t) => {
  const folder = await smallDisk(t, 64 * MIB);
  const { layers, unpack } = await agentIn(folder);
  const outside = join(folder, 'outside');
  await mkdir(outside);
  await writeFile(join(outside, 'file'), 'kept');
  const name = fc.constantFrom('a', 'b', 'c', 'file', '.', '..', '', 'outside', '.wh.a', '.wh.file', '.wh..wh..opq');
  const start = fc.constantFrom('', '', '', '', './', '../../../outside/', `${outside}/`);
  const path = fc.tuple(start, fc.array(name, { maxLength: 3 })).map(([first, names]) => first + names.join('/'));
  const type = fc.constantFrom(
    'File',
    'File',
    'Directory',
    'Directory',
    'Link',
    'SymbolicLink',
    'SymbolicLink',
    'FIFO',
  );
  const entry = fc.record({ path, type, target: path, contents: fc.constantFrom('', 'new'), uid: fc.nat(3) });
  let [unpacked, rejected] = [0, 0];
  await fc.assert(
    fc.asyncProperty(fc.array(entry as fc.Arbitrary<TestEntry>, { minLength: 1, maxLength: 6 }), async (entries) => {
      const before = await readdir(layers);
      const next = `layer-${before.length}`;
      const isWhole = await unpack(archiveOf(entries.map(plain)), next).then(
        () => true,
        (error) => {
          if (!(error instanceof LayerError)) throw error;
          return false;
        },
      );
      if (isWhole) unpacked++;
      else rejected++;
      t.same((await readdir(layers)).sort(), (isWhole ? [...before, next] : before).sort());
      t.same((await readdir(folder)).sort(), ['agent', 'layers', 'outside']);
      t.same([await readdir(outside), await readFile(join(outside, 'file'), 'utf8')], [['file'], 'kept']);
      t.same((await lstat(join(outside, 'file'))).nlink, 1);
    }),
    { numRuns: 1000 },
  );
  t.comment(`${unpacked} were unpacked, ${rejected} refused`);
  t.ok(unpacked > 50 && rejected > 50);
});

/** Targets and contents only where they belong. */
const plain = ({ target = '', contents = '', ...entry }: TestEntry): TestEntry => ({
  ...entry,
  ...(entry.type?.endsWith('Link') ? { target } : {}),
  ...(entry.type === 'File' ? { contents } : {}),
});
