import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { CHAOS, lanesOf } from '../../../tools/test/lanes.ts';
import { runLanes, runTap } from '../../../tools/test/tap.ts';
import { totalOf } from '../../../tools/test/tap-report.ts';

const root = path.resolve(import.meta.dirname, '../../..');
/** This file is itself run by tap; the runs that it starts are not part of that one. */
const env = { ...process.env, TAP_CHILD_ID: undefined, NODE_OPTIONS: '--no-deprecation' };

/** Runs test files with these texts; `print` collects what the run prints. */
async function runOf(t: Test, texts: Record<string, string>) {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'cnapi-tap-')));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const files = Object.entries(texts).map(([name, text]) => {
    const file = path.join(folder, `${name}.test.mjs`);
    writeFileSync(
      file,
      `import t from ${JSON.stringify(path.join(root, 'node_modules/tap/dist/esm/index.js'))};\n${text}`,
    );
    return file;
  });
  const printed: string[] = [];
  const totals = await runTap({ root, files, env, print: (line) => printed.push(line) });
  return { totals, printed: printed.join('\n'), fileOf: (name: string) => path.join(folder, `${name}.test.mjs`) };
}

t.test('assertions of all files are counted, and a file that fails is named', async (t) => {
  const { totals, fileOf } = await runOf(t, {
    good: `t.test('inner', async (t) => { t.pass('one'); t.pass('two'); });`,
    bad: `t.test('inner', async (t) => { t.pass('one'); t.equal(1, 2, 'the same'); });`,
    exits: `t.pass('one'); process.on('exit', () => { process.exitCode = 3; });`,
  });
  t.strictSame([totals.passed, totals.failed, totals.isWhole], [4, 2, true]);
  t.strictSame(totals.failedFiles.toSorted(), [fileOf('bad'), fileOf('exits')]);
  t.ok(totals.failures.includes(`${fileOf('bad')} › inner › the same`));
});

t.test('a test file and the programs that it starts load nothing of the test runner', async (t) => {
  const { totals, printed } = await runOf(t, {
    options: `import { spawnSync } from 'node:child_process';
      const { stdout } = spawnSync(process.execPath, ['-p', 'process.env.NODE_OPTIONS'], { encoding: 'utf8' });
      t.strictSame([process.env.NODE_OPTIONS, stdout], ['--no-deprecation', '--no-deprecation\\n']);
      t.notMatch(process.execArgv.join(' '), /import|source-maps/);
      t.equal(process.env.TAP_TIMEOUT, '900');`,
  });
  t.strictSame([totals.passed, totals.failed], [3, 0], printed);
});

t.test('a lane starts when the one before it has ended, and not after a run that was cut short', async (t) => {
  for (const isWhole of [true, false]) {
    const log: string[] = [];
    const run = async ({ name }: { name: string }) => {
      log.push(`${name} starts`);
      if (name !== 'chaos') await new Promise((resolve) => setImmediate(resolve));
      log.push(`${name} ends`);
      return { ...totalOf([]), passed: 1, isWhole };
    };
    const totals = await runLanes(lanesOf(['test/a.test.ts', CHAOS]), run);
    const chaos = isWhole ? ['chaos starts', 'chaos ends'] : [];
    t.strictSame(log, ['timed starts', 'timed ends', ...chaos]);
    t.strictSame([totals.passed, totals.isWhole], [isWhole ? 2 : 1, isWhole]);
  }
});
