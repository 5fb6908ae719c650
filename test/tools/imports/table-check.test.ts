import t from 'tap';
import { checkTableUses } from '../../../tools/imports/table-check.ts';
import { matchLists } from '../../support/match-lists.ts';
import { tree } from './tree.ts';

const tables = {
  'lib/control/roster/migrations/001-authority.sql': 'create table cnapi_roster_authority (server_uuid uuid);',
  'lib/control/tasks/migrations/001-tasks.sql': 'create table if not exists cnapi_tasks (id uuid);',
  'lib/control/servers/server-bucket.ts': `export const bucket = documentBucket({\n  name: 'cnapi_servers',\n});`,
};
const none = { reads: [], writes: [] };
const use = (part: string, table: string) => ({ part, table, reason: 'a reason' });

t.test('a part may name its own tables, and any table in comments and other texts', async (t) => {
  const root = tree(t, {
    ...tables,
    'lib/control/tasks/store/task-store.ts': `
      // It locks no row from cnapi_roster_authority.
      /* Nor one from cnapi_servers. */
      const q = 'select 1 from cnapi_tasks'; const metric = 'cnapi_servers';`,
    'lib/control/tasks/migrations/002-claim.sql': '-- Not cnapi_roster_authority.\nupdate cnapi_tasks set id = null;',
  });
  t.strictSame(checkTableUses(root, none), []);
});

t.test("a statement with another part's table is reported, and whether it writes", async (t) => {
  const rows: [file: string, text: string, complaint: RegExp][] = [
    ['tasks/task-store.ts', '`select 1 from cnapi_roster_authority`', /control\/tasks reads cnapi_roster_authority/],
    [
      'tasks/task-store.ts',
      '`select 1\n  from a join\n  cnapi_servers s`',
      /tasks reads cnapi_servers, .*servers owns/,
    ],
    ['tasks/task-store.ts', '`select 1 from a, cnapi_servers s`', /control\/tasks reads cnapi_servers/],
    ['tasks/task-store.ts', `"select to_regclass('cnapi_servers')"`, /control\/tasks reads cnapi_servers/],
    ['roster/roster-store.ts', '`update cnapi_tasks set id = null`', /control\/roster writes cnapi_tasks/],
    ['roster/roster-store.ts', '`insert into cnapi_tasks values (1)`', /control\/roster writes cnapi_tasks/],
    ['roster/roster-store.ts', '`delete from only cnapi_tasks`', /control\/roster writes cnapi_tasks/],
    ['roster/migrations/002-x.sql', 'alter table cnapi_tasks add column x int', /control\/roster writes cnapi_tasks/],
    ['roster/migrations/002-x.sql', 'create trigger x after insert on cnapi_tasks', /roster reads cnapi_tasks/],
    ['roster/migrations/002-x.sql', 'declare\n  row cnapi_tasks;', /control\/roster reads cnapi_tasks/],
  ];
  for (const [file, text, complaint] of rows) {
    const root = tree(t, { ...tables, [`lib/control/${file}`]: text });
    matchLists(t, checkTableUses(root, none), [complaint], text);
  }
});

t.test('a listed use is allowed; one that is listed for reading only may not write', async (t) => {
  const root = tree(t, {
    ...tables,
    'lib/control/tasks/store/task-store.ts': '`select 1 from cnapi_roster_authority`',
    'lib/control/servers/server-store.ts': '`update cnapi_tasks set id = (select null from cnapi_tasks)`',
  });
  const reads = [use('control/tasks', 'cnapi_roster_authority')];
  const writes = [use('control/servers', 'cnapi_tasks')];
  t.strictSame(checkTableUses(root, { reads, writes }), []);
  matchLists(t, checkTableUses(root, { reads: [...reads, ...writes], writes: [] }), [
    /control\/servers may read cnapi_tasks, and does not/,
    /control\/servers writes cnapi_tasks/,
  ]);
});

t.test('a listed use that does not exist is reported', async (t) => {
  const root = tree(t, tables);
  const lists = { reads: [use('control/tasks', 'cnapi_servers')], writes: [use('control/tasks', 'cnapi_gone')] };
  t.strictSame(checkTableUses(root, lists), [
    'tools/imports/tables.ts: control/tasks may read cnapi_servers, and does not: take it out',
    'tools/imports/tables.ts: control/tasks may write cnapi_gone, and does not: take it out',
  ]);
});
