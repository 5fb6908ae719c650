/** What `npm run mutate` changes, and what it does not change. */
import t from 'tap';
import { codeEdits, isSource } from '../../../tools/mutate/code-mutants.ts';
import { applied, mutantOf, shuffled } from '../../../tools/mutate/mutant.ts';
import { sqlEdits } from '../../../tools/mutate/sql-mutants.ts';
import { failureIn } from '../../../tools/mutate/trial.ts';

const changes = (source: string) => codeEdits(source).map((edit) => applied(edit, source));
const sqlChanges = (text: string) => sqlEdits(`\`${text}\``).map((edit) => applied(edit, `\`${text}\``).slice(1, -1));

const SPLICED = '$' + '{c}';

const code: { name: string; source: string; mutants: string[] }[] = [
  { name: 'a condition', source: 'if (a) b();', mutants: ['if (!(a)) b();', 'if (a) ;'] },
  {
    name: 'an equality, once',
    source: 'if (a === 2) b = c;',
    mutants: ['if (!(a === 2)) b = c;', 'if (a === 1) b = c;', 'if (a === 2) ;'],
  },
  { name: 'a bound', source: 'const x = a < b;', mutants: ['const x = a <= b;'] },
  { name: 'both sides of an and', source: 'const x = a && b;', mutants: ['const x = a || b;'] },
  {
    name: 'types are not changed',
    source: 'const x: Map<A, B> = a as B; const y = !x;',
    mutants: ['const x: Map<A, B> = a as B; const y = x;'],
  },
  {
    name: 'a sum, but not of strings',
    source: "const x = a + b; const y = 'a' + b;",
    mutants: ["const x = a - b; const y = 'a' + b;"],
  },
  { name: 'a filter', source: 'const x = a.filter(isIt);', mutants: ['const x = a;'] },
  {
    name: 'logging is not changed',
    source:
      "if (a) this.deps.log.info({ a }, 'b'); log.warn({}, 'c'); if (b === 0) log.info({}, 'd'); else if (!c) log.info({}, 'e');",
    mutants: [],
  },
  { name: 'tuning constants are not changed', source: 'const RETRY_MS = 5; const text = `a b c`;', mutants: [] },
  {
    name: 'nor are numbers inside them',
    source: 'const BOUNDS = [0.1, 1, 5]; const SIZES = { most: 4 * 1024 }; const LAST = 2 ** 31 - 1;',
    mutants: [],
  },
  {
    name: 'other conditions of a constant are changed',
    source: 'const IS_FAST = !a;',
    mutants: ['const IS_FAST = a;'],
  },
  {
    name: 'assignments in a constructor are not changed',
    source: 'class A { constructor(b) { this.b = b; } }',
    mutants: [],
  },
];
for (const { name, source, mutants } of code) t.same(changes(source).sort(), mutants.sort(), name);

t.ok(
  codeEdits(`const q = \`select a from b where c = ${SPLICED} for update\`;`).length > 0,
  'SQL in a template is found',
);
t.same(codeEdits('const q = `select among these, please`;'), [], 'prose in a template is not SQL');

const sql: { name: string; text: string; mutants: string[] }[] = [
  {
    name: 'each guard, and the lock',
    text: 'select x from a where b = 1 and c = 2 for update skip locked',
    mutants: [
      'select x from a where true and c = 2 for update skip locked',
      'select x from a where b = 1 and true  for update skip locked'.replace('  for', ' for'),
      'select x from a where b = 1 and c = 2 ',
      'select x from a where b = 1 and c = 2 for update',
    ],
  },
  {
    name: 'an and inside brackets or a between belongs to its guard',
    text: 'delete from a where (b or c and d) and e between 1 and 2 returning f',
    mutants: [
      'delete from a where true and e between 1 and 2 returning f',
      'delete from a where (b or c and d) and true returning f',
    ],
  },
  {
    name: 'each of several assignments',
    text: "update a set b = f(1, 2), c = 3 where d = 'x and y'",
    mutants: [
      "update a set  c = 3 where d = 'x and y'",
      "update a set b = f(1, 2) where d = 'x and y'",
      'update a set b = f(1, 2), c = 3 where true ',
    ],
  },
  { name: 'the condition of an index is not a guard', text: 'create index on a (b) where c is null', mutants: [] },
  {
    name: 'interpolated expressions are not changed',
    text: `select a from b where ${SPLICED} limit 1`,
    mutants: ['select a from b where true limit 1'],
  },
];
const squeezed = (text: string) => text.replace(/\s+/g, ' ').trim();
for (const { name, text, mutants } of sql)
  t.same(sqlChanges(text).map(squeezed).sort(), mutants.map(squeezed).sort(), name);

t.test('each mutant can be parsed and has a unique id', async (t) => {
  const source = 'export const f = (a: number): boolean => a > 1 && !(a === 7);';
  const mutants = codeEdits(source).map((edit) => mutantOf('lib/x.ts', source, edit));
  for (const mutant of mutants) t.ok(isSource(applied(mutant, source)), mutant.kind);
  t.equal(new Set(mutants.map(({ id }) => id)).size, mutants.length);
  t.notOk(isSource('const = 1'));
});

t.test('a sample depends on its seed only, and a larger one begins with a smaller one', async (t) => {
  const source = 'a(); b(); c(); d(); e(); f(); g();';
  const mutants = codeEdits(source).map((edit) => mutantOf('lib/x.ts', source, edit));
  const ids = (seed: string, from = mutants) => shuffled(from, seed).map(({ id }) => id);
  t.same(ids('1'), ids('1', mutants.toReversed()));
  t.notSame(ids('1'), ids('2'));
  t.same(ids('1').toSorted(), ids('2').toSorted());
});

const inSubtest = (assertion: string) =>
  ['TAP version 14', '# Subtest: outer', '    ok 1 - fine', `    not ok 2 - ${assertion}`, 'Bail out!'].join('\n');

const failures = [
  { name: 'a failed assertion is named with its enclosing tests', of: 'one is two', outcome: 'failed' },
  { name: 'the time limit of tap counts as a time-out', of: 'timeout!', outcome: 'timed out' },
  { name: 'a wait in vain counts as a time-out', of: 'waited 60000 ms in vain: () => a', outcome: 'timed out' },
];
for (const { name, of, outcome } of failures)
  t.same(failureIn(inSubtest(of), 'x.test.ts'), { outcome, failure: `x.test.ts › outer › ${of}` }, name);

t.same(
  failureIn('TAP version 14\n', 'x.test.ts'),
  { outcome: 'failed', failure: 'x.test.ts ended badly' },
  'a process that ended without a failed assertion has failed',
);
