import t from 'tap';
import { MOST_AGAIN, runAgain } from '../../../tools/test/again.ts';
import { CHAOS } from '../../../tools/test/lanes.ts';

function totals(passed: number, failedFiles: readonly string[]) {
  const failures = failedFiles.map((file) => `${file} › an assertion`);
  return {
    passed,
    failed: failedFiles.length,
    failedFiles,
    failures,
    slowest: [],
    isWhole: true,
    skipped: new Map<string, number>(),
  };
}

/** A runner that records its files and lets these fail. */
function runner(fails: readonly string[]) {
  const ran: string[] = [];
  const run = async (file: string) => {
    ran.push(file);
    return totals(3, fails.includes(file) ? [file] : []);
  };
  return { ran, run };
}

t.test('a file that fails once and then passes is unsteady, and the run passes', async (t) => {
  const { ran, run } = runner([]);
  const told = await runAgain(totals(10, ['a']), run);
  t.same(told, { totals: totals(10, []), unsteady: ['a'] });
  t.same(ran, ['a']);
});

t.test('a file that fails twice has failed', async (t) => {
  const told = await runAgain(totals(10, ['a', 'b']), runner(['b']).run);
  t.same(told, { totals: totals(10, ['b']), unsteady: ['a'] });
});

t.test('nothing is repeated if nothing, too much or chaos failed, or the run was cut short', async (t) => {
  const many = Array.from({ length: MOST_AGAIN + 1 }, (_, index) => `file ${index}`);
  const cutShort = { ...totals(10, ['a']), isWhole: false };
  for (const first of [
    totals(10, []),
    totals(10, many),
    totals(10, ['a', CHAOS]),
    { ...totals(10, []), failed: 1 },
    cutShort,
  ]) {
    const { ran, run } = runner([]);
    t.same(await runAgain(first, run), { totals: first, unsteady: [] });
    t.same(ran, []);
  }
});
