/**
 * Brings a document bucket's table up to its declaration. Called at start, by several instances at
 * once and by different versions. An older declaration does not change a newer table. Every index
 * is a generated column, so objects written by older versions are in the newer indexes, too.
 */

import { isDeepStrictEqual } from 'node:util';
import type { Database, Queryable } from '../postgres/database.ts';
import { MigrationError, withMigrationLock } from '../postgres/migrations.ts';
import { quoteName, quoteText } from '../postgres/sql-text.ts';
import type { DocumentBucket, IndexDeclaration, TriggerDeclaration } from './bucket.ts';
import { type FieldType, sqlTypes } from './field-type.ts';

type Indexes = Record<string, IndexDeclaration>;

interface StoredBucket {
  version: number;
  indexes: Indexes;
  on_change: string[] | null;
}

/**
 * @throws MigrationError when the declaration changes an earlier declaration instead of adding to
 * it
 */
export async function ensureTable(database: Database, bucket: DocumentBucket): Promise<void> {
  if (isCurrent(await storedBucket(database, bucket.name), bucket)) return;
  await withMigrationLock(database, async (connection) => {
    const stored = await storedBucket(connection, bucket.name);
    if (isCurrent(stored, bucket)) return;
    const indexes = { ...stored?.indexes, ...bucket.indexes };
    await connection.query(tableText(bucket));
    await connection.query(
      `insert into cnapi_buckets (name, version, indexes, on_change)
         values ($1::text, $2::int, $3::text::jsonb, $4::text::jsonb)
       on conflict (name) do update set version = excluded.version, indexes = excluded.indexes,
         on_change = excluded.on_change`,
      [bucket.name, bucket.version, JSON.stringify(indexes), JSON.stringify(triggerOf(bucket) ?? stored?.on_change)],
    );
  });
}

async function storedBucket(connection: Queryable, name: string): Promise<StoredBucket | undefined> {
  const text = 'select version, indexes, on_change from cnapi_buckets where name = $1::text';
  return (await connection.query<StoredBucket>(text, [name])).rows[0];
}

/** True when nothing has to be done. */
function isCurrent(stored: StoredBucket | undefined, bucket: DocumentBucket): boolean {
  if (stored === undefined) return false;
  for (const [field, { type }] of Object.entries(bucket.indexes)) {
    const before = stored.indexes[field];
    if (before !== undefined && before.type !== type) {
      throw new MigrationError(
        `bucket ${bucket.name}: ${field} is indexed as ${before.type}; index a ${type} under a new name`,
      );
    }
    if (before === undefined && stored.version >= bucket.version) {
      throw new MigrationError(
        `bucket ${bucket.name} version ${bucket.version} has no index on ${field}; raise its version`,
      );
    }
  }
  const trigger = triggerOf(bucket);
  if (stored.version === bucket.version && trigger !== undefined && !isDeepStrictEqual(trigger, stored.on_change))
    throw new MigrationError(`bucket ${bucket.name} has another trigger in the database; raise its version`);
  return stored.version >= bucket.version;
}

function triggerOf({ onChange }: DocumentBucket): string[] | undefined {
  return onChange && [onChange.name, ...onChange.arguments];
}

function tableText({ name, indexes, uniqueTogether = [], onChange }: DocumentBucket): string {
  const table = quoteName(name);
  const create = `
    create table if not exists ${table} (
      _id bigint generated always as identity primary key,
      _key text collate "C" not null unique,
      _value jsonb not null,
      _etag text not null,
      _mtime timestamptz not null
    )`;
  const fields = Object.entries(indexes);
  const columns = fields.map(
    ([field, { type }]) => `add column if not exists ${quoteName(field)} ${columnType(type, field)}`,
  );
  const alter = columns.length === 0 ? [] : [`alter table ${table} ${columns.join(', ')}`];
  const trigger = onChange === undefined ? [] : [triggerText(table, onChange)];
  const single = fields.map(([field, index]) => indexText(name, field, index));
  const together = uniqueTogether.map((several) => uniqueTogetherText(name, several));
  return [create, ...alter, ...single, ...together, ...trigger].join(';\n');
}

/**
 * A value of another type than the index leaves the column null; it is refused before it gets here.
 */
function columnType(type: FieldType, field: string): string {
  const json = `_value -> ${quoteText(field)}`;
  const text = `(_value ->> ${quoteText(field)})`;
  const only = (jsonType: string, sql: string) => `case when jsonb_typeof(${json}) = '${jsonType}' then ${sql} end`;
  const uuidPattern = `'^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'`;
  const derived: Record<FieldType, string> = {
    string: only('string', text),
    number: only('number', `${text}::numeric`),
    boolean: only('boolean', `${text}::boolean`),
    timestamp: only('string', `cnapi_parse_timestamp(${text})`),
    uuid: `case when ${text} ~ ${uuidPattern} then ${text}::uuid end`,
  };
  const collation = type === 'string' ? ' collate "C"' : '';
  return `${sqlTypes[type]}${collation} generated always as (${derived[type]}) stored`;
}

function indexText(bucket: string, field: string, { unique = false }: IndexDeclaration): string {
  const name = quoteName(unique ? uniqueIndexName(bucket, field) : `${bucket}_${field}_idx`);
  return `create ${unique ? 'unique ' : ''}index if not exists ${name} on ${quoteName(bucket)} (${quoteName(field)})`;
}

function uniqueTogetherText(bucket: string, fields: readonly string[]): string {
  const name = quoteName(uniqueTogetherName(bucket, fields));
  return `create unique index if not exists ${name} on ${quoteName(bucket)} (${fields.map(quoteName).join(', ')})`;
}

function triggerText(table: string, { name, arguments: values }: TriggerDeclaration): string {
  return `
    create or replace trigger cnapi_on_change after insert or update or delete on ${table}
      for each row execute function ${quoteName(name)}(${values.map(quoteText).join(', ')})`;
}

export function uniqueIndexName(bucket: string, field: string): string {
  return `${bucket}_${field}_uniq`;
}

export const uniqueTogetherName = (bucket: string, fields: readonly string[]): string =>
  uniqueIndexName(bucket, fields.join('_'));
