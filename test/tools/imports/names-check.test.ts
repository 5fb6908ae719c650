import t from 'tap';
import { checkNames } from '../../../tools/imports/names-check.ts';
import { tree } from './tree.ts';

const complaints = (t: Parameters<typeof tree>[0], files: Record<string, string>) => checkNames(tree(t, files));
const twice = (symbol: string) => `lib/a.ts, lib/b.ts: each exports ${symbol}: one name, one meaning`;

t.test('two files that export the same name are reported, whatever it stands for', async (t) => {
  const forms = [
    'export interface Same {}',
    'export type Same = 1;',
    'export class Same {}',
    'export const Same = 1;',
    'export async function Same() {}',
    'const one = 1;\nexport { one as Same };',
  ];
  for (const form of forms)
    t.strictSame(complaints(t, { 'lib/a.ts': 'export const Same = 1;', 'lib/b.ts': form }), [twice('Same')], form);
  t.strictSame(
    complaints(t, {
      'lib/a.ts': 'export const same = 1;',
      'lib/b.ts': "export { other as same } from './c.ts';",
      'lib/c.ts': 'export const other = 1;',
    }),
    [twice('same')],
  );
});

t.test('a re-export, and a type and a value of one file, are one', async (t) => {
  const files = {
    'lib/a.ts': "export const Same = ['x'] as const;\nexport type Same = (typeof Same)[number];",
    'lib/b.ts': "export { Same } from './a.ts';",
    'lib/c.ts': "// export const Same = 1;\nexport type { Same } from './a.ts';",
    'test/a.ts': 'export const Same = 1;',
  };
  t.strictSame(complaints(t, files), []);
});

t.test('a type that a file keeps for itself has no name of an exported type', async (t) => {
  const files = { 'lib/a.ts': 'export interface Same {}', 'lib/b.ts': 'interface Same {}\nconst other = 1;' };
  t.strictSame(complaints(t, files), ['lib/b.ts: its type Same has the name of an export of lib/a.ts: rename one']);
  t.strictSame(complaints(t, { ...files, 'lib/b.ts': 'const Same = 1;' }), []);
  t.strictSame(complaints(t, { 'lib/a.ts': 'interface Same {}', 'lib/b.ts': 'interface Same {}' }), []);
  t.strictSame(complaints(t, { 'lib/a.ts': 'export const Same = 1;', 'lib/b.ts': 'interface Same {}' }), []);
});

t.test('an id has not the name of its object, except in the protocol and in rows', async (t) => {
  const files = {
    'lib/a.ts': 'const go = (job: string, socketId: number) => 1;',
    'lib/b.ts': 'interface Row {\n  job: string | null;\n}\nquery<{ id: number; job: string }>()',
    'lib/c.ts': 'interface Link {\n  socket?: number;\n  task: Task;\n}',
    'lib/protocol/a.ts': 'interface Vote {\n  job: string;\n}',
  };
  t.strictSame(complaints(t, files), [
    'lib/a.ts: job: string: write jobId, for it is not the job itself',
    'lib/c.ts: socket?: number: write socketId, for it is not the socket itself',
  ]);
});
