import { generateKeyPairSync, sign } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { signedBytes } from '../../../lib/agent/packages/manifest.ts';
import { installFiles, verifyPackage } from '../../../lib/agent/packages/package-archive.ts';
import { buildPackage, tarOf } from '../../../tools/agent-package/build-package.ts';
import { packageShop, script } from '../../support/agent-packages.ts';
import type { TestEntry } from '../../support/layer-archive.ts';
import { bodiesOf, type ManifestChange, repack } from '../../support/wrong-packages.ts';

const signal = new AbortController().signal;
const file = (path: string, text: string) => ({ path, contents: Buffer.from(text) });
const FILES = [file('lib/deep/er.txt', 'one'), script('install', 'exit 0'), file(`long/${'x'.repeat(120)}`, 'two')];

async function prepare(t: Test) {
  const shop = await packageShop(t);
  const target = join(shop.data, 'files');
  await mkdir(target);
  const directory = join(target, '1.0.0-x');
  const take = async (bytes: Buffer, keys = [shop.publicKey]) => {
    const path = join(shop.folder, 'a.tar');
    await writeFile(path, bytes);
    const { manifest } = await verifyPackage(path, { keys, signal });
    await installFiles(path, { manifest, directory, signal });
  };
  const built = buildPackage({ name: 'a', version: '1.0.0', files: FILES, privateKey: shop.privateKey });
  /** With these entries in the archive. */
  const signed = (entries: readonly TestEntry[], change?: ManifestChange) =>
    repack(built, { entries, change, sign: (bytes) => sign(null, signedBytes(bytes), shop.privateKey) });
  return { shop, target, directory, take, signed };
}

const entries = (): TestEntry[] => FILES.map(({ path, contents }) => ({ path, contents }));

t.test('a signed package is unpacked with exactly its files', async (t) => {
  const { shop, target, directory, take } = await prepare(t);
  const other = generateKeyPairSync('ed25519').publicKey;
  const built = buildPackage({ name: 'a', version: '1.0.0', files: FILES, privateKey: shop.privateKey });
  await take(built, [other, shop.publicKey]);
  t.same(await readdir(target), ['1.0.0-x']);
  t.equal(await readFile(join(directory, 'lib/deep/er.txt'), 'utf8'), 'one');
  t.equal(await readFile(join(directory, `long/${'x'.repeat(120)}`), 'utf8'), 'two');
  const modes = await Promise.all(['install', 'lib/deep/er.txt'].map((name) => stat(join(directory, name))));
  t.same(
    modes.map(({ mode }) => mode & 0o777),
    [0o700, 0o600],
  );
});

t.test('what no trusted key has signed is refused before it is read', async (t) => {
  const { shop, target, take, signed } = await prepare(t);
  const other = generateKeyPairSync('ed25519');
  const built = buildPackage({ name: 'a', version: '1.0.0', files: FILES, privateKey: other.privateKey });
  await t.rejects(take(built), { code: 'PackageNotTrusted' });
  await t.rejects(take(built, []), { code: 'PackageNotTrusted' });
  const plain = signed(entries());
  const noPrefix = repack(plain, { entries: entries(), sign: (bytes) => sign(null, bytes, shop.privateKey) });
  await t.rejects(take(noPrefix), { code: 'PackageNotTrusted' }, 'a signature of something else');
  t.same(await readdir(target), []);
});

t.test('each changed byte of the manifest, the signature and the files is noticed', async (t) => {
  const { shop, target, take } = await prepare(t);
  const built = buildPackage({ name: 'a', version: '1.0.0', files: FILES, privateKey: shop.privateKey });
  for (const [from, to] of bodiesOf(built)) {
    for (let at = from; at < to; at += 23) {
      const changed = Buffer.from(built);
      changed[at] = (changed[at] ?? 0) ^ 0x41;
      await t.rejects(take(changed), `byte ${at}`);
    }
  }
  for (const length of [0, 100, 512, 1_000, built.length - 1_025])
    await t.rejects(
      take(built.subarray(0, length)),
      { code: /^Invalid(?:Package|Layer)$/ },
      `cut off after ${length} bytes`,
    );
  t.same(await readdir(target), []);
});

t.test('a signed archive that is not what its manifest says is refused as a whole', async (t) => {
  const { target, take, signed } = await prepare(t);
  await take(signed(entries()));
  await rm(join(target, '1.0.0-x'), { recursive: true });
  const [first, ...rest] = entries();
  const wrong: Record<string, TestEntry[]> = {
    'a file is missing': rest,
    'one file more': [...entries(), { path: 'more', contents: 'x' }],
    'a file twice': [...entries(), { path: 'install', contents: 'x' }],
    'other contents': [{ ...first, path: first?.path ?? '', contents: 'ONE' }, ...rest],
    'another size': [{ ...first, path: first?.path ?? '', contents: 'one two' }, ...rest],
    'an absolute path': [...entries(), { path: '/etc/passwd', contents: 'x' }],
    'a path upwards': [...entries(), { path: '../x', contents: 'x' }],
    'a symbolic link': [...entries(), { path: 'link', type: 'SymbolicLink', target: '/etc' }],
    'a hard link': [...entries(), { path: 'link', type: 'Link', target: 'install' }],
    'a device': [...entries(), { path: 'device', type: 'CharacterDevice' }],
    'a FIFO': [...entries(), { path: 'fifo', type: 'FIFO' }],
  };
  for (const [name, found] of Object.entries(wrong)) {
    await t.rejects(take(signed(found)), { code: /^Invalid(?:Package|Layer)$/ }, name);
    t.same(await readdir(target), [], `${name}: nothing is left`);
  }
});

t.test('a signed manifest that is wrong is refused', async (t) => {
  const { target, take, signed } = await prepare(t);
  const path =
    (to: string): ManifestChange =>
    (one) => ({
      ...one,
      files: [{ path: to, size: 1, sha256: 'a'.repeat(64) }],
    });
  const message = /its manifest is wrong|it has a twice|a is a file and a directory/;
  const wrong: Record<string, ManifestChange> = {
    'another format': (one) => ({ ...one, format: 2 }),
    'an unknown key': (one) => ({ ...one, more: 1 }),
    'a name with a slash': (one) => ({ ...one, name: '../a' }),
    'a version that is a path': (one) => ({ ...one, version: '../1.0.0' }),
    'an absolute path': path('/etc/passwd'),
    'a path upwards': path('a/../../b'),
    'an empty name': path('a//b'),
    'a NUL': path('a\0b'),
    'a name that no file system takes': path(`a/${'é'.repeat(128)}`),
    'a path that is too long': path('a/'.repeat(500).concat('b')),
    'no files': (one) => ({ ...one, files: [] }),
    'too many files': (one) => ({
      ...one,
      files: Array.from({ length: 50_001 }, (_, at) => ({ path: `${at}`, size: 0, sha256: 'a'.repeat(64) })),
    }),
    'a file with a negative size': (one) => ({ ...one, files: [{ path: 'a', size: -1, sha256: 'a'.repeat(64) }] }),
    'a file that is also a directory': (one) => ({
      ...one,
      files: ['a', 'a/b'].map((name) => ({ path: name, size: 1, sha256: 'a'.repeat(64) })),
    }),
    'a path twice': (one) => ({
      ...one,
      files: ['a', 'a'].map((name) => ({ path: name, size: 1, sha256: 'a'.repeat(64) })),
    }),
  };
  for (const [name, change] of Object.entries(wrong)) {
    await t.rejects(take(signed(entries(), change)), { code: 'InvalidPackage', message }, name);
    t.same(await readdir(target), [], `${name}: nothing is left`);
  }
});

t.test('a signed compression bomb is refused by what its manifest allows', async (t) => {
  const { target, take, signed } = await prepare(t);
  const bomb = [...entries(), { path: 'zeros', contents: Buffer.alloc(8 * 1024 * 1024) }];
  await t.rejects(take(signed(bomb)), { code: /^Invalid(?:Package|Layer)$/ });
  t.same(await readdir(target), []);
});

t.test('a file that does not consist of the three parts of a package is refused', async (t) => {
  const { shop, target, take } = await prepare(t);
  const built = buildPackage({ name: 'a', version: '1.0.0', files: FILES, privateKey: shop.privateKey });
  const [manifest, signature, files] = bodiesOf(built).map(([from, to]) => built.subarray(from, to));
  const tar = (...parts: [path: string, contents: Buffer | undefined][]) =>
    tarOf(parts.map(([path, contents = Buffer.alloc(0)]) => ({ path, contents })));
  const all: [string, Buffer | undefined][] = [
    ['manifest.json', manifest],
    ['signature', signature],
    ['files.tar.gz', files],
  ];
  const [one, two, three] = all as [[string, Buffer], [string, Buffer], [string, Buffer]];
  await take(tar(...all));
  await rm(join(target, '1.0.0-x'), { recursive: true });
  const order = /it does not consist of manifest\.json, signature, files\.tar\.gz in this order/;
  const rows: [name: string, bytes: Buffer, message: RegExp][] = [
    ['another order', tar(two, one, three), order],
    ['no signature', tar(one, three), order],
    ['no files', tar(one, two), order],
    ['a fourth part', tar(one, two, three, ['more', files]), /it has more than its three files/],
    ['a long signature', tar(one, ['signature', Buffer.alloc(65)], three), /signature has more than 64 bytes/],
    [
      'a huge manifest',
      tar(['manifest.json', Buffer.alloc(16 * 1024 * 1024 + 1)], two, three),
      /manifest\.json has more than 16777216 bytes/,
    ],
    ['other files', tar(one, two, ['files.tar.gz', manifest]), /its files are not those that were signed/],
  ];
  for (const [name, bytes, message] of rows) {
    await t.rejects(take(bytes), { code: 'InvalidPackage', message }, name);
    t.same(await readdir(target), [], `${name}: nothing is left`);
  }
});
