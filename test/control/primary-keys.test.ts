/**
 * A connection may plan a statement while a table is empty, and keep the plan when it has filled.
 * Every index costs the same then. Postgres 18 can use an index whose first columns are not given,
 * by searching it once for each of their values: for a task's id the index of creation times, once
 * for each task. Among equal costs the newest index wins, so the primary key is created last.
 */
import pg from 'pg';
import t from 'tap';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { freshDatabase } from '../support/postgres.ts';

const KEYS = `
  select c.relname as table, i.relname as index,
      array_agg(format('%I = $%s', a.attname, k.place) order by k.place) as given,
      array_agg(format_type(a.atttypid, a.atttypmod) order by k.place) as types
    from pg_index x
    join pg_class c on c.oid = x.indrelid join pg_class i on i.oid = x.indexrelid
    cross join lateral unnest(x.indkey::int[]) with ordinality as k (attnum, place)
    join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
    where x.indisprimary and c.relname like 'cnapi\\_%'
    group by 1, 2 order by 1`;

t.test('a lookup by a primary key uses it, planned while the table is empty', async (t) => {
  const { url } = await freshDatabase(t, { migrations });
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  t.teardown(() => client.end());
  await client.query('set plan_cache_mode = force_generic_plan');
  await client.query('set enable_seqscan = off');
  const { rows: keys } = await client.query<{ table: string; index: string; given: string[]; types: string[] }>(KEYS);
  t.ok(keys.length > 20, `${keys.length} tables`);

  async function check(when: string) {
    for (const { table, index, given, types } of keys) {
      await client.query(`prepare lookup (${types.join(', ')}) as select * from ${table} where ${given.join(' and ')}`);
      const { rows } = await client.query(`explain execute lookup (${types.map(() => 'null').join(', ')})`);
      const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
      t.match(plan, ` using ${index} on `, `${table}, ${when}`);
      await client.query('deallocate lookup');
    }
  }
  await check('new');
  await client.query('vacuum analyze');
  await check('found empty');
});
