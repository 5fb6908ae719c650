import t from 'tap';
import { checkExports } from '../../../tools/imports/exports-check.ts';
import { tree } from './tree.ts';

const complaints = (t: Parameters<typeof tree>[0], files: Record<string, string>) => checkExports(tree(t, files));
const noun = 'export const one = 1;\nexport function two() {}\nexport class Three {}\nexport interface Four {}\n';

t.test('what the product imports in any form may be exported', async (t) => {
  const importers = [
    "import {\n  type Four,\n  one as first,\n  Three,\n  two,\n} from './noun.ts';",
    "import type { Four } from './noun.ts';\nexport { one, Three, two } from './noun.ts';",
    "import * as noun from './noun.ts';",
    "const noun = await import('./noun.ts');",
  ];
  for (const importer of importers)
    t.strictSame(complaints(t, { 'lib/noun.ts': noun, 'lib/driver.ts': importer }), [], importer);
  t.strictSame(
    complaints(t, { 'lib/noun.ts': 'export const one = 1;', 'server.ts': "import { one } from './lib/noun.ts';" }),
    [],
  );
});

t.test('an export that no other file imports is reported', async (t) => {
  const importer = "// import { one } from './noun.ts'\nimport { two, Three, Four } from './noun.ts';";
  t.strictSame(complaints(t, { 'lib/noun.ts': noun, 'lib/driver.ts': importer }), [
    'lib/noun.ts: no other file imports one: do not export it, or delete it',
  ]);
});

t.test('tests may import what its own file uses, and nothing else that the product does not use', async (t) => {
  const files = {
    'lib/noun.ts': 'export const used = 1;\nexport const idle = 2;\nexport const twice = used * 2;\n// idle',
    'lib/driver.ts': "import { twice } from './noun.ts';",
    'test/noun.test.ts': "import { idle, used } from '../lib/noun.ts';",
  };
  t.strictSame(complaints(t, files), ['lib/noun.ts: only tests use idle: delete it, or move it to test/']);
});

t.test('what only a declaration uses that the product does not need is reported', async (t) => {
  const host = 'export class Host {\n  use(): Runtime {}\n}\nclass Runtime {\n  readonly host: Host;\n}\n';
  const test = { 'test/noun.test.ts': "import { Host } from '../lib/noun.ts';" };
  t.strictSame(complaints(t, { 'lib/noun.ts': host, ...test }), [
    'lib/noun.ts: only tests use Host: delete it, or move it to test/',
  ]);
  t.strictSame(complaints(t, { 'lib/noun.ts': `${host}run(new Host());\n`, ...test }), [], 'the file is a program');
});

t.test(
  'only tests use a rule that SQL follows, if a migration creates the function that its comment names',
  async (t) => {
    const rule =
      '/** Says it.\n * In SQL: cnapi_rule. */\nexport function rule() {}\n/** Not so. */\nexport const other = 1;';
    const test = "import { other, rule } from '../lib/noun.ts';";
    const files = { 'lib/noun.ts': rule, 'test/noun.test.ts': test };
    const unused = (symbol: string) => `lib/noun.ts: only tests use ${symbol}: delete it, or move it to test/`;
    const migration = { 'lib/001-noun.sql': 'create function cnapi_rule(p text) returns text' };
    t.strictSame(complaints(t, { ...files, ...migration }), [unused('other')]);
    t.strictSame(complaints(t, files), [unused('rule'), unused('other')]);
  },
);
