/**
 * Migrations are additive: in a database that a later version has migrated (`later.ts`), everything
 * that this one created is unchanged, and additions need nothing from versions that do not know
 * them. So the statements of this version work as before; `rolling.test.ts` shows it while both
 * versions run.
 */
import t from 'tap';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { silentLogger as log } from '../../lib/platform/log.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { migrate } from '../../lib/platform/postgres/migrations.ts';
import { freshDatabase } from '../support/postgres.ts';
import { laterSteps } from './later.ts';

t.test('the schema of this version is part of the later one', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const before = await schemaOf(database);
  t.ok(before.columns.size > 50 && before.functions.size > 10, 'there is something to compare');
  await migrate(database, [...migrations, ...laterSteps], { log });
  const after = await schemaOf(database);
  t.notSame(after, before, 'the later version changes the schema');
  t.same(conflicts(before, after), []);

  await migrate(database, migrations, { log });
  t.same(await schemaOf(database), after, 'this version leaves the database unchanged');
});

t.test('a change that this version could not work with is found', async (t) => {
  const changes: [sql: string, conflict: RegExp][] = [
    ['alter table cnapi_tasks drop column req_id', /column cnapi_tasks.req_id/],
    ['alter table cnapi_tasks alter column attempt type bigint', /column cnapi_tasks.attempt/],
    ['alter table cnapi_tokens add column owner text not null', /cnapi_tokens.owner may not be omitted/],
    ['create unique index on cnapi_tasks (req_id)', /cnapi_tasks_req_id_idx forbids what was allowed/],
    ['alter table cnapi_tasks add check (timeout_ms > 0)', /forbids what was allowed/],
    ['drop index cnapi_waitlist_active', /cnapi_waitlist_active/],
    ['drop function cnapi_tick() cascade', /function cnapi_tick\(\)/],
    ['alter function cnapi_tick() volatile', /function cnapi_tick\(\)/],
  ];
  for (const [sql, conflict] of changes) {
    const { database } = await freshDatabase(t, { migrations });
    const before = await schemaOf(database);
    await database.query(sql);
    t.match(conflicts(before, await schemaOf(database)).join('\n'), conflict, sql);
  }
});

interface Column {
  table: string;
  type: string;
  isNullable: boolean;
  hasDefault: boolean;
}

interface Schema {
  columns: Map<string, Column>;
  /** The result of each function that can be called by its name and arguments. */
  functions: Map<string, string>;
  /** Constraints and unique indexes: `table kind definition`. */
  rules: Map<string, string>;
}

function conflicts(before: Schema, after: Schema): string[] {
  const found: string[] = [];
  const same = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
  for (const part of ['columns', 'functions', 'rules'] as const)
    for (const [name, one] of before[part])
      if (!same(after[part].get(name), one)) found.push(`${part.slice(0, -1)} ${name} is not as it was`);
  const tables = new Set([...before.columns.values()].map(({ table }) => table));
  for (const [name, { table, isNullable, hasDefault }] of after.columns)
    if (tables.has(table) && !before.columns.has(name) && !isNullable && !hasDefault)
      found.push(`${name} may not be omitted`);
  for (const [name, rule] of after.rules)
    if (!before.rules.has(name) && tables.has(rule.split(' ')[0] ?? '') && / (unique|check|foreign) /.test(rule))
      found.push(`${name} forbids what was allowed`);
  return found;
}

async function schemaOf(database: Database): Promise<Schema> {
  const columns = await database.query<{ name: string } & Column>(
    `select c.relname || '.' || a.attname as name, c.relname as table, format_type(a.atttypid, a.atttypmod) as type,
       not a.attnotnull as "isNullable", a.atthasdef or a.attidentity <> '' as "hasDefault"
     from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'public' and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped`,
  );
  const functions = await database.query<{ name: string; result: string }>(
    `select p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')' as name,
       p.provolatile::text || ' ' || pg_get_function_result(p.oid) as result
     from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'public'`,
  );
  const rules = await database.query<{ name: string; rule: string }>(
    `select conrelid::regclass::text || ' ' || conname as name, conrelid::regclass::text
         || case contype when 'c' then ' check ' when 'f' then ' foreign ' else ' unique ' end || pg_get_constraintdef(oid) as rule
       from pg_constraint where connamespace = 'public'::regnamespace and contype in ('c', 'f', 'p', 'u')
     union all
     select 'index ' || indexrelid::regclass::text, indrelid::regclass::text || ' unique ' || pg_get_indexdef(indexrelid)
       from pg_index where indisunique and indrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)`,
  );
  return {
    columns: new Map(columns.rows.map(({ name, ...column }) => [name, column])),
    functions: new Map(functions.rows.map(({ name, result }) => [name, result])),
    rules: new Map(rules.rows.map(({ name, rule }) => [name, rule])),
  };
}
