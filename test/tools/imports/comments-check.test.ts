import t from 'tap';
import { checkComments } from '../../../tools/imports/comments-check.ts';
import { tree } from './tree.ts';

const begin = '/**';
const negated = ['is', 'no'].join(' ');

t.test('a documentation comment without a subject is reported with its line', async (t) => {
  const root = tree(t, {
    'lib/a.ts': `export interface A {\n  ${begin} Of the file. */\n  digest: string;\n}\n`,
    'test/b.ts': `${begin}\n * As in sh.\n */\nexport const b = 1;\n`,
  });
  t.strictSame(checkComments(root), [
    'lib/a.ts:2: a comment begins with "Of"; give it a subject',
    'test/b.ts:1: a comment begins with "As"; give it a subject',
  ]);
});

for (const [text, word] of [
  ['It has ended.', 'It'],
  ['Its beginning.', 'Its'],
  ['They have this version.', 'They'],
  ['Those of one caller.', 'Those'],
  ['One of all of them.', 'One'],
] as const)
  t.test(`a documentation comment that begins with "${word}" has no subject`, async (t) => {
    const root = tree(t, { 'lib/a.ts': `${begin} ${text} */\nexport const a = 1;\n` });
    t.strictSame(checkComments(root), [`lib/a.ts:1: a comment begins with "${word}"; give it a subject`]);
  });

t.test('a negated noun is reported with its line, in comments and in texts', async (t) => {
  const root = tree(t, {
    'lib/a.ts': `// 3 ${negated} text.\nthrow new Error('the answer ${negated} list');\n`,
  });
  t.strictSame(checkComments(root), [
    `lib/a.ts:1: "${negated} text": write "not" and the noun`,
    `lib/a.ts:2: "${negated} list": write "not" and the noun`,
  ]);
});

t.test('a comment over 100 columns is reported, unless it is a drawing', async (t) => {
  const words = 'word '.repeat(20);
  const root = tree(t, {
    'lib/a.ts': `${begin}\n * ${words}end.\n *     ${words}drawing\n */\nconst text = '${words}end.';\n// ${words}end.\n`,
    'lib/b.ts': `${begin} ${words}end. */\nexport const b = 1;\n`,
  });
  t.strictSame(checkComments(root), [
    'lib/a.ts:2: a comment has 107 columns; wrap it at 100',
    'lib/a.ts:6: a comment has 107 columns; wrap it at 100',
    'lib/b.ts:1: a comment has 111 columns; wrap it at 100',
  ]);
});

t.test('other comments are not reported', async (t) => {
  const root = tree(t, {
    'lib/a.ts': `${begin} Offset of the file. It is not read. */\nexport const a = 1;\n`,
    'lib/c.ts': `${begin} One entry per field. There ${negated} other, and it ${negated} longer read. */\nexport const c = 1;\n// It is read above.\n`,
    'tools/b.ts': `${begin}\n * Digest of the file.\n * As in sh.\n */\nexport const b = 1;\n`,
  });
  t.strictSame(checkComments(root), []);
});
