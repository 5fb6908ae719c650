import { spawn } from 'node:child_process';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';

const root = path.resolve(import.meta.dirname, '../../..');

/** Runs files with these texts in one process; returns the TAP and the exit code. */
async function run(t: Test, texts: Record<string, string>, names: readonly string[]) {
  const folder = t.testdir(texts);
  const files = names.map((name) => path.join(folder, name));
  const env = { ...process.env, TAP_CHILD_ID: undefined, TEST_FILES: JSON.stringify(files), TAP_TIMEOUT: '60' };
  const child = spawn(process.execPath, [...process.execArgv, 'tools/test/file-tests.ts'], {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  const tap = await text(child.stdout);
  return { tap: tap.replaceAll(`${folder}/`, ''), code: await ended };
}

t.test('each file has its own tests, and one that fails does not stop the others', async (t) => {
  const { tap, code } = await run(
    t,
    {
      'a.test.mjs': `import t, { Test } from 'tap'; t.test('of a', async (t) => t.ok(t instanceof Test));`,
      'b.test.mjs': `import t from 'tap'; t.test('of b', async (t) => t.equal(1, 2, 'the same')); t.ok(process.env.TEST_FILES === undefined);`,
      'c.test.mjs': `import t from 'tap'; t.teardown(() => console.error('ends')); t.test('of c', async (t) => t.pass());`,
    },
    ['a.test.mjs', 'b.test.mjs', 'c.test.mjs'],
  );
  t.match(tap, /^# Subtest: a\.test\.mjs\n {4}# Subtest: of a\n {8}ok 1/m);
  t.match(tap, /^ok 1 - a\.test\.mjs/m);
  t.match(tap, /^ {4}# Subtest: of b\n {8}not ok 1 - the same/m);
  t.match(tap, /^not ok 2 - b\.test\.mjs/m);
  t.match(tap, /^ok 3 - c\.test\.mjs/m);
  t.equal(code, 1);
});

t.test('a file that cannot be loaded fails by itself', async (t) => {
  const { tap, code } = await run(
    t,
    {
      'a.test.mjs': `import './missing.mjs';`,
      'b.test.mjs': `import t from 'tap'; t.test('of b', async (t) => t.pass());`,
    },
    ['a.test.mjs', 'b.test.mjs'],
  );
  t.match(tap, /^not ok 1 - a\.test\.mjs/m);
  t.match(tap, /^ok 2 - b\.test\.mjs/m);
  t.equal(code, 1);
});

t.test('a module that several files import may not import tap', async (t) => {
  const { tap } = await run(
    t,
    { 'a.test.mjs': `import './shared.mjs';`, 'shared.mjs': `import t from 'tap'; t.test('of nobody', () => {});` },
    ['a.test.mjs'],
  );
  t.match(tap, /shared\.mjs is not a test file and imports tap; it must take t as a parameter/);
});
