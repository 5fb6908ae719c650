import t from 'tap';
import { checkTable, checkTree } from '../../../tools/imports/check.ts';
import { importsOf } from '../../../tools/imports/source.ts';
import { matchLists } from '../../support/match-lists.ts';
import { type Teardown, tree } from './tree.ts';

const complaints = (t: Teardown, files: Record<string, string>) => checkTree(tree(t, files));

const empty = 'export {};\n';

t.test('every form of import is found, and nothing else', async (t) => {
  const text = `
import a from './a.ts';
import type { B } from "./b.ts";
import {
  c,
  type D,
} from './c.ts';
import './d.ts';
export * from './e.ts';
export { f } from './f.ts';
const g = await import('./g.ts');
// import h from './h.ts';
/* import i from './i.ts'; */
const url = 'http://x'; import j from './j.ts';
`;
  t.strictSame(
    importsOf(text).sort(),
    ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'j'].map((name) => `./${name}.ts`),
  );
});

t.test('a tree whose imports run one way has no findings', async (t) => {
  const found = complaints(t, {
    'lib/platform/time/clock.ts': empty,
    'lib/control/tasks/store/task.ts': `import type { Clock } from '../../../platform/time/clock.ts';\nimport { createHash } from 'node:crypto';`,
    'lib/control/tasks/routes/task-routes.ts': `import { x } from '../record/task.ts';`,
    'lib/control/tasks/subsystem.ts': `import { x } from './routes/task-routes.ts';`,
    'lib/control/subsystem-list.ts': `import { x } from './tasks/subsystem.ts';`,
    'lib/control/app.ts': `import { x } from './subsystem-list.ts';`,
    'server.ts': `import { x } from './lib/control/app.ts';`,
  });
  t.strictSame(found, []);
});

t.test('an import in the wrong direction is reported', async (t) => {
  const rows: [string, string, string][] = [
    ['lib/control/tasks/tasks.ts', '../roster/roster.ts', 'control/tasks may not know control/roster'],
    ['lib/control/waitlist/director.ts', '../servers/server.ts', 'control/waitlist may not know control/servers'],
    ['lib/control/tasks/tasks.ts', '../http/tasks.ts', 'control/tasks may not know control/http'],
    ['lib/platform/errors.ts', '../protocol/frames.ts', 'platform may not know protocol'],
    ['lib/agent/link/link-step.ts', '../../platform/postgres/pool.ts', 'agent/link may not know platform/postgres'],
    ['lib/control/http/route.ts', '../../name-server/main.ts', 'control/http may not know name-server'],
    ['server.ts', './lib/control/http/listener.ts', 'server.ts may not know control/http'],
    ['lib/cli/program.ts', '../control/request-errors.ts', 'cli may not know control/request-errors.ts'],
    ['lib/cli/access/token.ts', '../../control/doctor/doctor.ts', 'cli/access/token.ts may not know control/doctor'],
    ['lib/client/client.ts', '../control/access/token.ts', 'client may not know control/access'],
  ];
  for (const [from, to, expected] of rows) {
    t.match(complaints(t, { [from]: `import type { X } from '${to}';` }).join('\n'), expected, `${from} → ${to}`);
  }
});

t.test('the configuration may import the settings of any noun, and no other file of it', async (t) => {
  const importing = (target: string) => complaints(t, { 'lib/control/config.ts': `import { x } from '${target}';` });
  t.strictSame(importing('./roster/settings.ts'), []);
  t.match(importing('./roster/roster.ts').join('\n'), 'control/config.ts may not know control/roster');
});

t.test('a noun of the bucket store needs no line, and knows no other noun', async (t) => {
  const noun = `import { images } from '../../../protocol/api/documents/images.ts';\nimport { Documents } from '../documents.ts';`;
  const good = {
    'lib/protocol/api/documents/images.ts': `import { documentNoun } from './document-noun.ts';`,
    'lib/protocol/api/documents/document-nouns.ts': `export { images } from './images.ts';`,
    'lib/control/documents/images/images.ts': noun,
    'lib/control/documents/nouns.ts': `export { imagesSubsystem } from './images/images.ts';`,
  };
  t.strictSame(complaints(t, good), []);
  const rows: [string, string, string][] = [
    ['lib/control/documents/images/images.ts', '../vms/vms.ts', 'documents/images may not know control/documents/vms'],
    [
      'lib/protocol/api/documents/images.ts',
      '../../../control/documents/images/images.ts',
      'protocol/api may not know control/documents/images',
    ],
  ];
  for (const [from, to, expected] of rows)
    t.match(complaints(t, { [from]: `import type { X } from '${to}';` }).join('\n'), expected, `${from} → ${to}`);
});

t.test('a folder without a line in the table is refused', async (t) => {
  matchLists(t, complaints(t, { 'lib/utils/x.ts': empty }), [/lib\/utils has no line/]);
});

t.test('an allowed import that no file uses is reported', async (t) => {
  const root = tree(t, {
    'lib/control/tasks/tasks.ts': `import type { Clock } from '../../platform/clock.ts';\nimport { x } from '../../platform/bus/bus.ts';`,
    'lib/platform/bus/bus.ts': empty,
  });
  const table = {
    platform: [],
    'platform/bus': ['platform'],
    'control/tasks': ['platform', 'platform/bus', 'platform/moray'],
  };
  t.strictSame(checkTable(root, table), [
    'tools/imports/layers.ts: control/tasks may import platform/moray, and does not: take it out',
  ]);
});

t.test('a file that says that it is pure, and does I/O or imports its store, is reported', async (t) => {
  const imports = `import fs from 'node:fs';\nimport { load } from './task-store.ts';`;
  const found = complaints(t, {
    'lib/control/tasks/store/task.ts': `/** A task. Pure. */\n${imports}\nimport type { Row } from './row-store.ts';`,
    'lib/control/tasks/store/tasks.ts': `/** Tasks. */\n${imports}`,
    'lib/control/tasks/store/row-store.ts': empty,
    'lib/control/tasks/store/task-store.ts': empty,
  });
  matchLists(t, found, [/task\.ts imports node:fs: a pure file/, /task\.ts imports \.\/task-store\.ts/]);
});

t.test('an open of a subsystem without the type of what it returns is reported', async (t) => {
  const subsystem = (open: string) =>
    `export const tasksSubsystem = {\n  ${open}\n    return { name: 'tasks' };\n  },\n};`;
  const reported = (open: string) => complaints(t, { 'lib/control/tasks/subsystem.ts': subsystem(open) });
  for (const open of ['open(): Subsystem {', 'open({\n    tasks,\n  }): Subsystem {'])
    t.strictSame(reported(open), [], open);
  for (const open of ['open() {', 'open({ tasks }) {', 'open: (parts) => {', 'open(parts): object {']) {
    matchLists(t, reported(open), [/tasks\/subsystem\.ts: write `open\(…\): Subsystem/]);
  }
});

t.test('a cycle is reported once, with all its files', async (t) => {
  const found = complaints(t, {
    'lib/protocol/a.ts': `import './b.ts';`,
    'lib/protocol/b.ts': `import './c.ts';`,
    'lib/protocol/c.ts': `import './a.ts';`,
    'lib/protocol/d.ts': `import './a.ts';`,
  });
  t.strictSame(found, ['import cycle: lib/protocol/a.ts → lib/protocol/b.ts → lib/protocol/c.ts → lib/protocol/a.ts']);
});

t.test('folders of one part that import each other are reported; files beside them may use any', async (t) => {
  const found = complaints(t, {
    'lib/control/http/app.ts': `import './one/a.ts'; import './two/b.ts';`,
    'lib/control/http/one/a.ts': `import '../two/b.ts';`,
    'lib/control/http/two/b.ts': empty,
    'lib/control/http/two/c.ts': `import '../one/d.ts'; import '../route.ts';`,
    'lib/control/http/one/d.ts': empty,
    'lib/control/http/route.ts': empty,
  });
  t.strictSame(found, [
    'folders import each other: lib/control/http/one → lib/control/http/two → lib/control/http/one',
  ]);
  const ofCommands = complaints(t, {
    'lib/cli/exec/exec.ts': `import '../push/job.ts';`,
    'lib/cli/exec/ending.ts': empty,
    'lib/cli/push/job.ts': `import '../exec/ending.ts';`,
  });
  t.strictSame(ofCommands, ['folders import each other: lib/cli/exec → lib/cli/push → lib/cli/exec']);
  const ofAgent = complaints(t, {
    'lib/agent/vms/vms.ts': `import '../containers/inner/spec.ts';`,
    'lib/agent/vms/list.ts': empty,
    'lib/agent/containers/inner/spec.ts': `import '../table.ts';`,
    'lib/agent/containers/table.ts': `import './inner/other.ts'; import '../vms/list.ts';`,
    'lib/agent/containers/inner/other.ts': empty,
  });
  t.strictSame(ofAgent, [
    'lib/agent/containers/table.ts imports lib/agent/vms/list.ts: agent/containers may not know agent/vms',
  ]);
});

t.test('a reference to a missing file is reported', async (t) => {
  const found = complaints(t, {
    'docs/design.md': '',
    'lib/protocol/link/frames.ts': '/** docs/design.md, spec/wire.md, lib/protocol/link/codec.ts. */',
    'lib/protocol/link/codec.ts': empty,
  });
  t.strictSame(found, ['lib/protocol/link/frames.ts speaks of spec/wire.md, which is not there']);
});

t.test('a file that is too long is reported, unless its header gives a reason', async (t) => {
  const long = 'export {};\n'.repeat(401);
  const found = complaints(t, {
    'lib/protocol/long.ts': long,
    'lib/protocol/excused.ts': `// Passes 400 lines because it is a table.\n${long}`,
    'test/long.test.ts': long,
    'server.ts': 'export {};\n'.repeat(61),
  });
  matchLists(t, found, [/server\.ts has/, /lib\/protocol\/long\.ts has/, /test\/long\.test\.ts has/]);
  t.equal(found.length, 3);
});
