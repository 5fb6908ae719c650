/** Packages of other agents, as the tasks install and remove them. */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openPackages, packageFiles, packageShop, script } from '../../support/agent-packages.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import { until } from '../../support/until.ts';

const PLAIN = { path: 'lib/a', contents: Buffer.from('a') };
const OTHER = { path: 'lib/b', contents: Buffer.from('b') };

/** `said` has what the scripts wrote into the file that `SAY` appends to. */
async function prepare(t: Test) {
  const shop = await packageShop(t);
  const out = join(shop.folder, 'said');
  await writeFile(out, '');
  const say = (path: string, text: string, more = '') => script(path, `echo ${text} >>'${out}'\n${more}`);
  const said = async () => (await readFile(out, 'utf8')).split('\n').slice(0, -1);
  return { shop, say, said };
}

t.test('a package is installed with its script, updated, and removed with its script', async (t) => {
  const { shop, say, said } = await prepare(t);
  const packages = await openPackages(t, shop);
  let changes = 0;
  packages.onChange(() => {
    changes += 1;
  });
  const about = '$PACKAGE_NAME $PACKAGE_VERSION';
  const files = [PLAIN, say('install', `in ${about} $(pwd)`), say('uninstall', `out ${about}`)];
  const one = await shop.add({ name: 'probe', version: '1.0.0', files });
  t.same(await packages.install(one), { name: 'probe', version: '1.0.0', previous: null, changed: true });
  t.same(packages.list(), ['probe 1.0.0']);
  const [first = ''] = await said();
  t.match(first, new RegExp(`^in probe 1.0.0 ${shop.data}/packages/files/probe/1.0.0-[0-9a-f]{16}$`));
  t.same(await packageFiles(shop), [
    ...['install', 'lib/a', 'uninstall'].map((path) => `files/probe/1.0.0/${path}`),
    'records/probe.json',
  ]);

  t.same(await packages.install(one), { name: 'probe', version: '1.0.0', previous: '1.0.0', changed: false });
  t.equal((await said()).length, 1, 'what is installed already is not installed again');

  const two = await shop.add({ name: 'probe', version: '1.1.0', files: [OTHER, say('uninstall', `out ${about}`)] });
  t.same(await packages.install(two), { name: 'probe', version: '1.1.0', previous: '1.0.0', changed: true });
  t.same(
    await packageFiles(shop),
    ['files/probe/1.1.0/lib/b', 'files/probe/1.1.0/uninstall', 'records/probe.json'],
    'nothing of the former version is left',
  );

  t.same(await packages.uninstall('probe', 'probe', 'absent'), { removed: ['probe'], absent: ['absent'], failed: [] });
  t.equal(changes, 3, 'the sysinfo is told anew after each change, and after nothing else');
  t.same((await said()).slice(1), ['out probe 1.1.0']);
  t.same(packages.list(), []);
  t.same(await packageFiles(shop), []);
});

t.test('an older version is installed only if the task says so', async (t) => {
  const shop = await packageShop(t);
  const packages = await openPackages(t, shop);
  const [older, newer] = await Promise.all(
    ['1.9.0', '1.10.0'].map((version) => shop.add({ name: 'probe', version, files: [PLAIN] })),
  );
  await packages.install(newer ?? '');
  await t.rejects(packages.install(older ?? ''), {
    code: 'PackageDowngrade',
    message: 'Version 1.9.0 of probe is older than 1.10.0; say "downgrade": true if that is meant',
  });
  t.same(packages.list(), ['probe 1.10.0']);
  t.match(await packages.install(older ?? '', { allowDowngrade: true }), { previous: '1.10.0', changed: true });
  t.same(packages.list(), ['probe 1.9.0']);
});

t.test('a version that was built again is installed, and counts as a change', async (t) => {
  const shop = await packageShop(t);
  const packages = await openPackages(t, shop);
  await packages.install(await shop.add({ name: 'probe', version: '1.0.0', files: [PLAIN] }));
  const again = await packages.install(await shop.add({ name: 'probe', version: '1.0.0', files: [OTHER] }));
  t.same(again, { name: 'probe', version: '1.0.0', previous: '1.0.0', changed: true });
  t.same(await packageFiles(shop), ['files/probe/1.0.0/lib/b', 'records/probe.json']);
});

t.test('without --package-scripts, a package with a program is refused and one without is installed', async (t) => {
  const { shop, say, said } = await prepare(t);
  const packages = await openPackages(t, shop, { allowScripts: false });
  for (const name of ['install', 'uninstall']) {
    const file = await shop.add({ name: 'probe', version: '1.0.0', files: [PLAIN, say(name, name)] });
    await t.rejects(packages.install(file), {
      code: 'PackageScriptsNotAllowed',
      message: `probe has a program ${name}, and this agent was started without --package-scripts`,
    });
    t.same(await packageFiles(shop), [], `${name}: nothing is left`);
  }
  const deeper = ['install/it', 'uninstall/it'].map((path) => say(path, path));
  await packages.install(await shop.add({ name: 'probe', version: '1.0.0', files: deeper }));
  t.same(
    await packages.uninstall('probe'),
    { removed: ['probe'], absent: [], failed: [] },
    'a directory is not the program',
  );
  t.same(await said(), []);
});

t.test('a package whose uninstall may no longer run is kept', async (t) => {
  const { shop, say, said } = await prepare(t);
  const file = await shop.add({ name: 'probe', version: '1.0.0', files: [say('uninstall', 'out')] });
  await (await openPackages(t, shop)).install(file);
  const next = await openPackages(t, shop, { allowScripts: false });
  t.match((await next.uninstall('probe')).failed[0], { code: 'PackageScriptsNotAllowed' });
  t.same([next.list(), await said()], [['probe 1.0.0'], []]);
});

const failing = {
  'exits with a code': {
    install: script('install', 'echo no licence >&2; exit 3'),
    message: 'The program install of probe 2.0.0 failed with exit code 3: no licence',
  },
  'is not executable': {
    install: { path: 'install', contents: Buffer.from('#!/bin/sh\n') },
    message: /^The program install of probe 2\.0\.0 failed with exit code 126: .*ermission denied/,
  },
  'is ended by a signal': {
    install: script('install', 'kill -KILL $$'),
    message: /^The program install of probe 2\.0\.0 failed with .*SIGKILL/,
  },
};

for (const [name, { install, message }] of Object.entries(failing)) {
  t.test(`a package whose install ${name} is removed again, and the former version stays`, async (t) => {
    const shop = await packageShop(t);
    const packages = await openPackages(t, shop);
    const broken = await shop.add({ name: 'probe', version: '2.0.0', files: [PLAIN, install] });
    await t.rejects(packages.install(broken), { code: 'PackageScriptFailed', message });
    t.same([packages.list(), await packageFiles(shop)], [[], []]);
    await packages.install(await shop.add({ name: 'probe', version: '1.0.0', files: [PLAIN] }));
    await t.rejects(packages.install(broken), { code: 'PackageScriptFailed', message });
    t.same(packages.list(), ['probe 1.0.0']);
    t.same(await packageFiles(shop), ['files/probe/1.0.0/lib/a', 'records/probe.json']);
  });
}

t.test('a package whose uninstall fails stays, and can be removed later', async (t) => {
  const { shop } = await prepare(t);
  const packages = await openPackages(t, shop);
  const busy = join(shop.folder, 'busy');
  await writeFile(busy, '');
  const files = [script('uninstall', `if [ -e '${busy}' ]; then echo in use >&2; exit 1; fi; exit 0`)];
  await packages.install(await shop.add({ name: 'probe', version: '1.0.0', files }));
  t.match((await packages.uninstall('probe', 'other')).failed[0], {
    code: 'PackageScriptFailed',
    message: 'The program uninstall of probe 1.0.0 failed with exit code 1: in use',
  });
  t.same(packages.list(), ['probe 1.0.0']);
  await rm(busy);
  t.same(await packages.uninstall('probe'), { removed: ['probe'], absent: [], failed: [] });
});

t.test('the next process of the agent knows the packages, and removes what no record names', async (t) => {
  const shop = await packageShop(t);
  const file = await shop.add({ name: 'probe', version: '1.0.0', files: [PLAIN] });
  await (await openPackages(t, shop)).install(file);
  await mkdir(join(shop.data, 'packages/files/probe/2.0.0-x.new'));
  await mkdir(join(shop.data, 'packages/files/half/1.0.0-x'), { recursive: true });
  for (const name of ['half/1.0.0-x/a', 'probe/2.0.0-x.new/a'])
    await writeFile(join(shop.data, 'packages/files', name), 'a');
  const next = await openPackages(t, shop);
  t.same(next.list(), ['probe 1.0.0']);
  t.same(await packageFiles(shop), ['files/probe/1.0.0/lib/a', 'records/probe.json']);
  t.match(await next.install(file), { changed: false }, 'and does not install it again');
  t.same(await next.uninstall('probe'), { removed: ['probe'], absent: [], failed: [] });
  t.same((await openPackages(t, shop)).list(), []);
});

t.test('while a record cannot be read, the log says so and no files are removed', async (t) => {
  const shop = await packageShop(t);
  const file = await shop.add({ name: 'probe', version: '1.0.0', files: [PLAIN] });
  await (await openPackages(t, shop)).install(file);
  await writeFile(join(shop.data, 'packages/records/probe.json'), '{');
  const records: Record<string, unknown>[] = [];
  const next = await openPackages(t, shop, { log: recordingLogger(records) });
  t.same(next.list(), []);
  t.match(records[0], { level: 'error', package: 'probe', reason: /JSON/ });
  t.ok((await packageFiles(shop)).includes('files/probe/1.0.0/lib/a'));
  await next.install(file);
  t.same((await openPackages(t, shop)).list(), ['probe 1.0.0'], 'a further installation repairs it');
});

t.test('an install that was stopped runs again in the next process', async (t) => {
  const { shop, say, said } = await prepare(t);
  const ready = join(shop.folder, 'ready');
  const install = say('install', 'began', `[ -e '${ready}' ] || exec sleep 60`);
  const file = await shop.add({ name: 'probe', version: '1.0.0', files: [install] });
  const [task, stopping] = [crypto.randomUUID(), new AbortController()];
  const first = (await openPackages(t, shop)).install(file, { taskId: task, signal: stopping.signal });
  const stopped = t.rejects(first, { message: 'the agent stops' });
  await until(async () => (await said()).length === 1, 'the script to begin');
  stopping.abort(new Error('the agent stops'));
  await stopped;
  await writeFile(ready, '');
  const next = await openPackages(t, shop);
  t.same(next.list(), []);
  t.match(await next.install(file, { taskId: task }), { version: '1.0.0', previous: null, changed: true });
  t.same(await said(), ['began', 'began']);
});

t.test('the agent does not remove itself, and names that are paths are absent', async (t) => {
  const shop = await packageShop(t);
  const packages = await openPackages(t, shop);
  await t.rejects(packages.uninstall('probe', 'cn-agent'), { code: 'OwnAgent', message: /cannot remove itself/ });
  const names = ['../files', '..', '.', '/', '__proto__'];
  t.same(await packages.uninstall(...names), { removed: [], absent: names, failed: [] });
});
