import t from 'tap';
import { TapReport, totalOf } from '../../../tools/test/tap-report.ts';
import { matchLists } from '../../support/match-lists.ts';

function report(text: string, ok: boolean) {
  const printed: string[] = [];
  const made = new TapReport((line) => printed.push(line));
  for (const line of text.split('\n')) made.take(line);
  return { totals: made.end(ok), printed };
}

const good = `TAP version 14
# Subtest: test/a.test.ts
    ok 1 - fine
    ok 2 - later # SKIP no redis
    ok 3 - later, too # SKIP no redis
    1..3
ok 1 - test/a.test.ts # time=12.5ms
`;

t.test('a file that passed is one line, and skipped tests are counted by reason', async (t) => {
  const { totals, printed } = report(`${good}1..1\n# { total: 3, pass: 1, skip: 2 }`, true);
  t.strictSame(totals, {
    passed: 1,
    failed: 0,
    skipped: new Map([['no redis', 2]]),
    failures: [],
    failedFiles: [],
    slowest: [],
    isWhole: true,
  });
  t.strictSame(printed, ['ok test/a.test.ts (12.5ms)']);
});

t.test('the ten slowest files are told, the slowest first', async (t) => {
  const files = Array.from({ length: 12 }, (_, number) => `ok ${number} - test/${number}.test.ts # time=${number}s`);
  const { totals } = report(`${good}${files.join('\n')}`, true);
  t.equal(totals.slowest.length, 10);
  t.strictSame(totals.slowest[0], { file: 'test/11.test.ts', ms: 11_000 });
  t.strictSame(totals.slowest[9], { file: 'test/2.test.ts', ms: 2_000 });
  const short = report(`${good}ok 2 - test/b.test.ts # time=0.1s`, true).totals.slowest;
  t.strictSame(
    short.map(({ file }) => file),
    ['test/b.test.ts', 'test/a.test.ts'],
    'seconds and milliseconds',
  );
});

t.test('a file that failed is printed in full', async (t) => {
  const failed = `# Subtest: test/b.test.ts
    not ok 1 - should be equal
      ---
      diff: all
      ...
    1..1
not ok 2 - test/b.test.ts # time=3s
  ---
  exitCode: 1
  ...
`;
  const { totals, printed } = report(`${good}${failed}1..2\n# { total: 4, pass: 1, fail: 1, skip: 2 }`, false);
  t.strictSame([totals.passed, totals.failed, totals.failedFiles], [1, 1, ['test/b.test.ts']]);
  t.match(printed.join('\n'), /diff: all[\s\S]*exitCode: 1/);
});

t.test('each failed assertion is named once, with its file and tests', async (t) => {
  const text = `# Subtest: test/b.test.ts
    # Subtest: first
        ok 1 - fine
        1..1
    ok 1 - first # time=1ms
    
    # Subtest: second
        # Subtest: inner
            not ok 1 - should be equal
              ---
              diff: all
              ...
            1..1
        not ok 1 - inner # time=1ms
        not ok 2 - and is ended
        1..2
    not ok 2 - second # time=1.5ms
    not ok 3 - at the top
    1..3
not ok 2 - test/b.test.ts # time=3s
`;
  const { totals } = report(`${text}# { total: 4, pass: 1, fail: 3 }`, false);
  t.strictSame(totals.failures, [
    'test/b.test.ts › second › inner › should be equal',
    'test/b.test.ts › second › and is ended',
    'test/b.test.ts › at the top',
  ]);
});

t.test('a file that exits with an error without a failed assertion counts as failed', async (t) => {
  const { totals } = report('not ok 1 - test/c.test.ts # time=3s\n# { total: 5, pass: 5 }', false);
  t.strictSame([totals.passed, totals.failed], [5, 1]);
  t.strictSame(totals.failures, ['test/c.test.ts ended badly']);
});

t.test('a run that breaks off counts as failed and prints its output', async (t) => {
  const { totals, printed } = report('TAP version 14\nsomething broke', false);
  t.strictSame([totals.passed, totals.failed, totals.isWhole], [0, 1, false]);
  matchLists(t, printed, ['TAP version 14', 'something broke']);
});

t.test('runs beside each other are counted together', async (t) => {
  const one = report(`${good}1..1\n# { total: 3, pass: 1, skip: 2 }`, true).totals;
  const cut = report('# Subtest: test/b.test.ts\n    ok 1 - fine', false).totals;
  t.match(totalOf([one, one]), { passed: 2, failed: 0, skipped: new Map([['no redis', 4]]), isWhole: true });
  t.match(totalOf([one, cut]), { passed: 1, failed: 1, isWhole: false });
});

t.test('a file that reached its limit is named once', async (t) => {
  const { totals } = report(
    'not ok 1 - test/b.test.ts # time=9s\n  ---\n  ...\nnot ok 2 - timeout!\n  ---\n  ...',
    false,
  );
  t.strictSame(totals.failedFiles, ['test/b.test.ts']);
  t.equal(totals.failed, 1);
});

const ofGroup = (end: string) => `TAP version 14
# Subtest: files:test/a.test.ts,test/b.test.ts,test/c.test.ts
    # Subtest: test/a.test.ts
        ok 1 - fine
        1..1
    ok 1 - test/a.test.ts # time=12.5ms
    # Subtest: test/b.test.ts
        # Subtest: inner
            not ok 1 - the same
              ---
              diff: all
              ...
            1..1
        not ok 1 - inner
    not ok 2 - test/b.test.ts # time=3s
      ---
      at: there
      ...
${end}`;

t.test('files that share a process are reported as if each had run alone', async (t) => {
  const { totals, printed } = report(
    ofGroup(`    ok 3 - test/c.test.ts # time=4s
    1..3
not ok 1 - files:test/a.test.ts,test/b.test.ts,test/c.test.ts # time=8s
  ---
  exitCode: 1
  ...
# Subtest: test/d.test.ts
    ok 1 - fine
ok 2 - test/d.test.ts # time=1s
1..2
# { total: 4, pass: 3, fail: 1 }`),
    false,
  );
  matchLists(t, totals, {
    passed: 3,
    failed: 1,
    failures: ['test/b.test.ts › inner › the same'],
    failedFiles: ['test/b.test.ts'],
    slowest: [
      { file: 'test/c.test.ts', ms: 4000 },
      { file: 'test/b.test.ts', ms: 3000 },
      { file: 'test/d.test.ts', ms: 1000 },
      { file: 'test/a.test.ts', ms: 12.5 },
    ],
    isWhole: true,
  });
  t.ok(printed.includes('ok test/c.test.ts (4s)'));
  t.ok(printed.includes('not ok 2 - test/b.test.ts # time=3s'));
});

t.test('when a shared process dies, the files that it had not finished have failed', async (t) => {
  const { totals } = report(
    ofGroup(`not ok 1 - files:test/a.test.ts,test/b.test.ts,test/c.test.ts # time=8s
  ---
  exitCode: 7
  ...
1..1
# { total: 3, pass: 1, fail: 2 }`),
    false,
  );
  t.strictSame(totals.failedFiles, ['test/b.test.ts', 'test/c.test.ts']);
});

t.test('when a shared process ends badly after its last file, each of its files is suspect', async (t) => {
  const { totals } = report(
    `# Subtest: files:test/a.test.ts,test/b.test.ts
    ok 1 - test/a.test.ts # time=1s
    ok 2 - test/b.test.ts # time=1s
not ok 1 - files:test/a.test.ts,test/b.test.ts # time=8s
  ---
  exitCode: 7
  ...
1..1
# { total: 3, pass: 2, fail: 1 }`,
    false,
  );
  t.strictSame(totals.failedFiles, ['test/a.test.ts', 'test/b.test.ts']);
});
