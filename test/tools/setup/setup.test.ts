import { existsSync, globSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { matchLists } from '../../support/match-lists.ts';
import { until } from '../../support/until.ts';
import { Checkout } from './checkout.ts';

t.test('the first run installs and prints the path of Node; the second does not call npm', async (t) => {
  const checkout = new Checkout(t);
  const first = await checkout.run();
  t.equal(first.code, 0, first.stderr);
  t.equal(first.stdout, `${process.execPath}\n`);
  matchLists(t, checkout.npmCalls, [/checkout ci --ignore-scripts/]);
  const second = await checkout.run();
  t.strictSame([second.code, second.stdout, second.stderr], [0, first.stdout, '']);
  t.equal(checkout.npmCalls.length, 1);
});

t.test('a changed lock file or a missing node_modules is installed again', async (t) => {
  const checkout = new Checkout(t);
  await checkout.run();
  checkout.changeLock('second');
  await checkout.run();
  t.equal(checkout.npmCalls.length, 2);
  rmSync(path.join(checkout.root, 'node_modules'), { recursive: true });
  await checkout.run();
  t.equal(checkout.npmCalls.length, 3);
});

t.test('a program of the product needs only its own packages; a test adds the others beside them', async (t) => {
  const checkout = new Checkout(t);
  for (const program of ['tools/start/main.ts', 'server.ts', 'lib/cli/main.ts'])
    t.equal((await checkout.run({ program })).code, 0, program);
  matchLists(t, checkout.npmCalls, [/checkout ci --ignore-scripts --omit=dev/]);
  await checkout.run({ program: 'tools/test/main.ts' });
  matchLists(t, checkout.npmCalls.slice(1), [/checkout install --no-save --ignore-scripts --fetch/]);
  await checkout.run({ program: 'tools/start/main.ts' });
  await checkout.run();
  t.equal(checkout.npmCalls.length, 2, 'all packages serve every program');
  checkout.changeLock('second');
  await checkout.run();
  matchLists(t, checkout.npmCalls.slice(2), [/checkout ci --ignore-scripts --fetch/]);
});

t.test('the help of npm start and npm test is printed before anything is installed', async (t) => {
  const checkout = new Checkout(t);
  for (const [program, option] of [
    ['tools/start/main.ts', '--database-url URL'],
    ['tools/test/main.ts', 'npm test -- --all'],
  ] as const) {
    const { code, stdout, stderr } = await checkout.startProgram(program, ['--help']).ended;
    t.strictSame([code, stderr], [0, ''], program);
    t.match(stdout, option);
  }
  t.strictSame(checkout.npmCalls, []);
});

t.test('what is part of the product imports no package of development', (t) => {
  const root = path.resolve(import.meta.dirname, '../../..');
  const { dependencies } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const files = globSync(['server.ts', 'lib/**/*.ts', 'tools/{start,processes,setup}/**/*.{ts,mjs}', 'tools/*.ts'], {
    cwd: root,
  });
  t.ok(files.length > 300);
  for (const file of files) {
    const text = readFileSync(path.join(root, file), 'utf8');
    for (const [, from = ''] of text.matchAll(/^(?!import type )(?:import|export|\}) ?.*? from '([^'.][^']*)';$/gm)) {
      const name = from.split('/', from.startsWith('@') ? 2 : 1).join('/');
      t.ok(name.startsWith('node:') || name in dependencies, `${file}: ${from}`);
    }
  }
  t.end();
});

t.test('a node_modules that links to another checkout is left alone', async (t) => {
  const checkout = new Checkout(t);
  const others = path.join(checkout.root, '../others');
  mkdirSync(path.join(others, 'package'), { recursive: true });
  symlinkSync(others, path.join(checkout.root, 'node_modules'));
  const { code, stdout } = await checkout.run();
  t.strictSame([code, stdout], [0, `${process.execPath}\n`]);
  t.strictSame(checkout.npmCalls, []);
  t.ok(existsSync(path.join(others, 'package')));
});

t.test('with a linked node_modules under an old Node, only the pinned Node is installed', async (t) => {
  const checkout = new Checkout(t);
  const others = path.join(checkout.root, '../others');
  mkdirSync(path.join(others, 'package'), { recursive: true });
  symlinkSync(others, path.join(checkout.root, 'node_modules'));
  const { code } = await checkout.run({ underOldNode: true });
  t.equal(code, 0);
  t.ok(
    checkout.npmCalls.every((call) => call.includes('/.runtime/node ')),
    checkout.npmCalls.join(', '),
  );
  t.equal(checkout.npmCalls.length, 1);
  t.ok(existsSync(path.join(others, 'package')));
});

t.test('a failure says what failed and what to do, and the next run repairs it', async (t) => {
  const checkout = new Checkout(t);
  checkout.npmFails('npm error code ENOTFOUND\nnpm error network request to the registry failed');
  const failed = await checkout.run();
  t.equal(failed.code, 1);
  t.equal(failed.stdout, '');
  t.match(failed.stderr, /npm ci failed/);
  t.match(failed.stderr, /ENOTFOUND/);
  t.match(failed.stderr, /registry could not be reached.*then run the same command again/);
  t.notMatch(failed.stderr, /at .*\.mjs:\d+/, 'no stack trace');
  checkout.npmGoesOn();
  t.equal((await checkout.run()).code, 0);
});

t.test('when npm silently skips the pinned Node, set-up fails with npm’s reason', async (t) => {
  const checkout = new Checkout(t);
  checkout.npmFetchesNothing(`npm error code ECONNREFUSED
npm error request failed, reason: connect ECONNREFUSED
npm error     at some (file.js:1:2) {
npm error   code: 'ECONNREFUSED',
npm error }`);
  const failed = await checkout.run({ underOldNode: true });
  t.equal(failed.code, 1);
  t.match(failed.stderr, /npm view failed:\n {2}npm error code ECONNREFUSED\n.*reason: connect ECONNREFUSED\ncnapi: /);
  t.match(failed.stderr, /registry could not be reached.*then run the same command again/);
  checkout.npmGoesOn();
  t.equal((await checkout.run({ underOldNode: true })).code, 0);
});

t.test('of two runs at once one installs, the other says that it waits, and both succeed', async (t) => {
  const checkout = new Checkout(t);
  checkout.npmWaits();
  const first = checkout.start();
  await until(() => checkout.npmCalls.length === 1, 'npm to run');
  const second = checkout.start();
  let said = '';
  second.child.stderr?.on('data', (chunk) => {
    said += chunk;
  });
  await until(() => said.includes('waiting'), 'the second run to wait');
  t.match(said, new RegExp(`waiting for another set-up \\(pid ${first.child.pid}\\)`));
  checkout.npmGoesOn();
  const results = await Promise.all([first.ended, second.ended]);
  t.strictSame(
    results.map(({ code, stdout }) => [code, stdout]),
    [
      [0, `${process.execPath}\n`],
      [0, `${process.execPath}\n`],
    ],
  );
  t.equal(checkout.npmCalls.length, 1);
});

t.test('a killed set-up is repeated only after its npm has ended', async (t) => {
  const checkout = new Checkout(t);
  checkout.npmWaits();
  const killed = checkout.start();
  await until(() => checkout.npmCalls.length === 1, 'npm to run');
  const npm = checkout.npmPid;
  killed.child.kill('SIGKILL');
  await killed.ended.catch(() => undefined);
  t.ok(checkout.has('node_modules/half'));
  const next = checkout.start();
  let said = '';
  next.child.stderr?.on('data', (chunk) => {
    said += chunk;
  });
  await until(() => said.includes(`(pid ${npm})`), 'the next run to wait for npm');
  t.equal(checkout.npmCalls.length, 1);
  checkout.npmGoesOn();
  t.equal((await next.ended).code, 0);
  t.equal(checkout.npmCalls.length, 2, 'what the killed run installed is not used');
  t.ok(checkout.has('node_modules/whole'));
});

t.test('SIGTERM ends set-up and its npm', async (t) => {
  const checkout = new Checkout(t);
  checkout.npmWaits();
  const run = checkout.start();
  await until(() => checkout.npmCalls.length === 1, 'npm to run');
  const npm = checkout.npmPid;
  run.child.kill('SIGTERM');
  t.not((await run.ended).code, 0);
  t.throws(() => process.kill(npm, 0), { code: 'ESRCH' });
});

t.test('under an older Node the pinned one is fetched once, by its own lock file', async (t) => {
  const checkout = new Checkout(t);
  const first = await checkout.run({ underOldNode: true });
  t.equal(first.code, 0, first.stderr);
  t.match(first.stdout, /\.runtime\/node\/node_modules\/node-.*\/bin\/node\n$/);
  t.match(first.stderr, /fetching Node 24.*this machine's is 20\.11\.1/);
  matchLists(t, checkout.npmCalls, [/\.runtime\/node ci --ignore-scripts/, /checkout ci --ignore-scripts/]);
  const lock = 'tools/setup/runtime/package-lock.json';
  t.equal(
    readFileSync(path.join(checkout.root, '.runtime/node/package-lock.json'), 'utf8'),
    readFileSync(path.join(checkout.root, lock), 'utf8'),
  );
  const second = await checkout.run({ underOldNode: true });
  t.strictSame([second.stdout, second.stderr], [first.stdout, '']);
  t.equal(checkout.npmCalls.length, 2);
});
