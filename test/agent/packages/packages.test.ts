/** Packages that this agent refuses, with the code and the text with which the task ends. */
import { generateKeyPairSync, sign } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { signedBytes } from '../../../lib/agent/packages/manifest.ts';
import { buildPackage } from '../../../tools/agent-package/build-package.ts';
import { openPackages, type PackageShop, packageFiles, packageShop } from '../../support/agent-packages.ts';
import type { TestEntry } from '../../support/layer-archive.ts';
import { bodiesOf, type ManifestChange, repack } from '../../support/wrong-packages.ts';

const A = { path: 'lib/a', contents: Buffer.from('aaaa') };
const PROGRAM = { path: 'lib/agent/main.ts', contents: Buffer.from('process.exit(0);') };

const add = (shop: PackageShop, about: { name?: string; version?: string; node?: string; files?: (typeof A)[] }) =>
  shop.add({ name: 'probe', version: '1.0.0', files: [A], ...about });

/** The signed package, changed. */
async function changed(shop: PackageShop, change: (built: Buffer) => Buffer): Promise<string> {
  const file = await add(shop, {});
  await writeFile(file, change(await readFile(file)));
  return file;
}

/** With these entries instead of its file, and signed. */
const signed = (shop: PackageShop, entries: readonly TestEntry[], change?: ManifestChange) =>
  changed(shop, (built) =>
    repack(built, { entries, change, sign: (bytes) => sign(null, signedBytes(bytes), shop.privateKey) }),
  );

const notIn = (path: string) => `The package is refused: ${JSON.stringify(path)} is not in its manifest`;
const UNTRUSTED = 'The package is refused: no key that this agent trusts (--package-key) signed it';

type Row = [name: string, make: (shop: PackageShop) => Promise<string>, code: string, message: string | RegExp];

const untrusted: Row[] = [
  [
    'signed by an unknown key',
    async (shop) => {
      const { privateKey } = generateKeyPairSync('ed25519');
      const file = join(shop.folder, 'unknown.tar');
      await writeFile(file, buildPackage({ name: 'probe', version: '1.0.0', files: [A], privateKey }));
      return file;
    },
    'PackageNotTrusted',
    UNTRUSTED,
  ],
  [
    'of another version than was signed',
    (shop) =>
      changed(shop, (built) => {
        const at = built.indexOf('"1.0.0"');
        return Buffer.concat([built.subarray(0, at), Buffer.from('"9.0.0"'), built.subarray(at + 7)]);
      }),
    'PackageNotTrusted',
    UNTRUSTED,
  ],
  [
    'with other files than were signed',
    (shop) =>
      changed(shop, (built) => {
        const [, , [at = 0] = []] = bodiesOf(built);
        return Buffer.concat([built.subarray(0, at + 20), Buffer.from([0]), built.subarray(at + 21)]);
      }),
    'InvalidPackage',
    'The package is refused: its files are not those that were signed',
  ],
  [
    'that is cut off',
    (shop) => changed(shop, (built) => built.subarray(0, built.length - 1_400)),
    'InvalidPackage',
    'The package is refused: it is cut off',
  ],
];

const wrong: Row[] = [
  [
    'of which the digest of a file is wrong',
    (shop) => signed(shop, [{ path: 'lib/a', contents: 'aaab' }]),
    'InvalidPackage',
    'The package is refused: "lib/a" is not what was signed',
  ],
  [
    'of which a file is too large',
    (shop) => signed(shop, [{ path: 'lib/a', contents: 'aaaaa' }]),
    'InvalidPackage',
    'The package is refused: "lib/a" has another size than signed',
  ],
  [
    'without a file of its manifest',
    (shop) => signed(shop, [{ path: 'lib/' }]),
    'InvalidPackage',
    'The package is refused: "lib/a" of its manifest is missing',
  ],
  [
    'with a path that leaves its directory',
    (shop) => signed(shop, [{ path: '../lib/a', contents: 'aaaa' }]),
    'InvalidPackage',
    notIn('../lib/a'),
  ],
  [
    'with an absolute path',
    (shop) => signed(shop, [{ path: '/lib/a', contents: 'aaaa' }]),
    'InvalidPackage',
    notIn('/lib/a'),
  ],
  [
    'with a symbolic link for a file',
    (shop) => signed(shop, [{ path: 'lib/a', type: 'SymbolicLink', target: '/etc/passwd' }]),
    'InvalidPackage',
    /^The package is refused: "lib\/a" is a .*link, and no file$/,
  ],
  [
    'with a device',
    (shop) => signed(shop, [{ path: 'lib/a', type: 'CharacterDevice' }]),
    'InvalidPackage',
    /^The package is refused: "lib\/a" is a .*device, and no file$/,
  ],
  [
    'that becomes larger than its manifest says',
    (shop) => signed(shop, [{ path: 'lib/a', contents: Buffer.alloc(4 * 1024 * 1024) }]),
    'InvalidPackage',
    /^The package is refused: ("lib\/a" has another size|it has more than)/,
  ],
  [
    'with many more entries than its manifest says',
    (shop) =>
      signed(
        shop,
        Array.from({ length: 40 }, () => ({ path: 'lib/' })),
      ),
    'InvalidPackage',
    /^The package is refused: it has more than \d+ bytes, the maximum here$/,
  ],
  [
    'with a damaged header in its archive',
    (shop) => signed(shop, [{ path: 'lib/a', contents: 'aaaa', pax: { size: 'x' } }]),
    'InvalidPackage',
    'The package is refused: "x" is not a valid size',
  ],
];

const unsuitable: Row[] = [
  [
    'for a newer Node',
    (shop) => add(shop, { node: '99.1.0' }),
    'NodeTooOld',
    `The package needs Node 99.1.0; here is ${process.versions.node}`,
  ],
  [
    'of another name than the task says',
    (shop) => add(shop, { name: 'probe-2' }),
    'PackageMismatch',
    'The package is probe-2, and not probe',
  ],
  [
    'of this agent under another name',
    (shop) => add(shop, { name: 'cn-agent' }),
    'PackageMismatch',
    'The package is cn-agent, and not probe',
  ],
];

for (const [name, make, code, message] of [...untrusted, ...wrong, ...unsuitable])
  t.test(`a package ${name} is refused, and the installed one stays`, async (t) => {
    const shop = await packageShop(t);
    const packages = await openPackages(t, shop);
    await packages.install(await add(shop, { version: '0.9.0' }));
    const file = await make(shop);
    await t.rejects(packages.install(file, { name: 'probe' }), { code, message });
    t.same(packages.list(), ['probe 0.9.0']);
    t.same(await packageFiles(shop), ['files/probe/0.9.0/lib/a', 'records/probe.json'], 'nothing of it is left');
  });

t.test('a package for this Node, and of the name that the task says, is installed', async (t) => {
  const shop = await packageShop(t);
  const packages = await openPackages(t, shop);
  const file = await add(shop, { node: process.versions.node });
  t.match(await packages.install(file, { name: 'probe' }), { name: 'probe', changed: true });
});

const own: Record<string, { about: Parameters<typeof add>[1]; isLaunched?: boolean; code: string; message: RegExp }> = {
  'without the program of an agent': {
    about: { version: '0.2.0' },
    code: 'InvalidPackage',
    message: /^The package is refused: it has no lib\/agent\/main\.ts, so it is not an agent$/,
  },
  'of an older version': {
    about: { version: '0.0.9', files: [PROGRAM] },
    code: 'PackageDowngrade',
    message: /^Version 0\.0\.9 is older than 0\.1\.0, which runs; say "downgrade": true/,
  },
  'that no launcher would start': {
    about: { version: '0.2.0', files: [PROGRAM] },
    isLaunched: false,
    code: 'NoLauncher',
    message: /started without its launcher/,
  },
};

for (const [name, { about, isLaunched = true, code, message }] of Object.entries(own))
  t.test(`a package of this agent ${name} is refused`, async (t) => {
    const shop = await packageShop(t);
    const packages = await openPackages(t, shop, { isLaunched });
    const file = await add(shop, { name: 'cn-agent', ...about });
    await t.rejects(packages.install(file), { code, message });
    t.same(await packageFiles(shop), []);
  });

t.test('a package of the version that runs is not installed again', async (t) => {
  const shop = await packageShop(t);
  const packages = await openPackages(t, shop, { isLaunched: true });
  const file = await add(shop, { name: 'cn-agent', version: '0.1.0', files: [PROGRAM] });
  const same = { name: 'cn-agent', version: '0.1.0', previous: '0.1.0', changed: false };
  t.same(await packages.install(file), same);
  t.same(await packageFiles(shop), []);
});
