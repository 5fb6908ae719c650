/**
 * Migrations are additive: in a database that this version has migrated, everything that the
 * previous one created is unchanged, and additions need nothing from versions that do not know
 * them. So the statements of the previous version work as before; `rolling.test.ts` shows it while
 * both versions run.
 */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { migrations } from '../../lib/control/core.ts';
import { silentLogger as log } from '../../lib/platform/log.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { type Migration, migrate } from '../../lib/platform/postgres/migrations.ts';
import { freshDatabase } from '../support/postgres.ts';
import { unpackPrevious } from './previous.ts';

interface PreviousCore {
  migrations: readonly Migration[];
}
interface PreviousMigrations {
  migrate: typeof migrate;
}

t.test('the schema of the previous version is part of this one', async (t) => {
  const root = unpackPrevious(t);
  const load = (file: string): Promise<unknown> => import(pathToFileURL(path.join(root, 'lib', file)).href);
  const previous = (await load('core.ts')) as PreviousCore;
  const { migrate: migratePreviously } = (await load('moray/migrations.ts')) as PreviousMigrations;
  const { database } = await freshDatabase(t);
  await migratePreviously(database, previous.migrations, { log });
  const before = await schemaOf(database);
  await migrate(database, migrations, { log });
  const after = await schemaOf(database);

  t.ok(before.columns.size > 50 && before.functions.size > 10, 'there is something to compare');
  for (const [name, column] of before.columns) t.same(after.columns.get(name), column, `column ${name}`);
  for (const [name, one] of before.functions) t.equal(after.functions.get(name), one, `function ${name}`);
  for (const [name, rule] of before.rules) t.equal(after.rules.get(name), rule, name);

  const tables = new Set([...before.columns.values()].map(({ table }) => table));
  for (const [name, { table, isNullable, hasDefault }] of after.columns)
    if (tables.has(table) && !before.columns.has(name)) t.ok(isNullable || hasDefault, `${name} may be omitted`);
  for (const [name, rule] of after.rules)
    if (!before.rules.has(name) && tables.has(rule.split(' ')[0] ?? ''))
      t.notMatch(rule, / (unique|check|foreign) /, `${name} forbids nothing that was allowed`);

  await migratePreviously(database, previous.migrations, { log });
  t.same(await schemaOf(database), after, 'the previous version leaves the database unchanged');
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
