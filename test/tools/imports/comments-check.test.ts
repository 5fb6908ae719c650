import t from 'tap';
import { checkComments } from '../../../tools/imports/comments-check.ts';
import { tree } from './tree.ts';

const begin = '/**';

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

t.test('other comments are not reported', async (t) => {
  const root = tree(t, {
    'lib/a.ts': `${begin} Offset of the file. */\nexport const a = 1;\n`,
    'tools/b.ts': `${begin}\n * Digest of the file.\n * As in sh.\n */\nexport const b = 1;\n`,
  });
  t.strictSame(checkComments(root), []);
});
