/**
 * The statements of the bucket store. Pure: declarations and values in, SQL text and parameters
 * out.
 */
import type { Bucket, ColumnsBucket, DocumentBucket } from './bucket.ts';
import { sqlTypes } from './field-type.ts';
import type { Filter } from './filter.ts';
import { filterCondition, type QueryField } from './filter-sql.ts';
import { InvalidQueryError, NotIndexedError } from './moray-errors.ts';
import { Parameters, quoteName, quoteText, type Statement } from './sql-text.ts';

export interface Sort {
  field: string;
  order?: 'asc' | 'desc';
}

export interface FindOptions {
  /** Objects that compare equal are in order of creation (of the key in a columns bucket). */
  sort?: readonly Sort[];
  limit?: number;
  offset?: number;
}

export function getStatement(bucket: Bucket, key: string | boolean): Statement {
  const parameters = new Parameters();
  const keyField = keyOf(bucket);
  const condition = `${keyField.sql} = ${parameters.add(key, sqlTypes[keyField.type])}`;
  return {
    text: `select ${objectColumns(bucket)} from ${quoteName(bucket.name)} where ${condition}`,
    values: parameters.values,
  };
}

export function getManyStatement(bucket: DocumentBucket, keys: readonly string[]): Statement {
  const text = `select ${objectColumns(bucket)} from ${quoteName(bucket.name)} where _key = any($1::text[])`;
  return { text, values: [keys] };
}

export function findStatement(bucket: Bucket, filter: Filter, options: FindOptions): Statement {
  const parameters = new Parameters();
  const clauses = [
    `select ${objectColumns(bucket)} from ${quoteName(bucket.name)}`,
    `where ${filterCondition(filter, bucket, parameters)}`,
    `order by ${orderOf(bucket, options.sort ?? [])}`,
  ];
  if (options.limit !== undefined)
    clauses.push(`limit ${parameters.add(wholeNumber('limit', options.limit), 'bigint')}`);
  if (options.offset !== undefined)
    clauses.push(`offset ${parameters.add(wholeNumber('offset', options.offset), 'bigint')}`);
  return { text: clauses.join(' '), values: parameters.values };
}

export function countStatement(bucket: Bucket, filter: Filter): Statement {
  const parameters = new Parameters();
  const condition = filterCondition(filter, bucket, parameters);
  return {
    text: `select count(*) as count from ${quoteName(bucket.name)} where ${condition}`,
    values: parameters.values,
  };
}

/** Etags come from one sequence and are hashed with the value, so no two writes share one. */
const newEtag = (written: string) => `md5(nextval('cnapi_etag')::text || ${written})`;

/**
 * One statement for each kind of condition. It returns no row when the condition does not hold.
 * @param etag undefined: no condition; null: the key must not exist; else the etag must match
 */
export function putStatement(
  bucket: DocumentBucket,
  key: string,
  json: string,
  etag: string | null | undefined,
): Statement {
  const table = quoteName(bucket.name);
  const insert = `
    insert into ${table} (_key, _value, _etag, _mtime)
    values ($1::text, $2::text::jsonb, ${newEtag('$2::text')}, cnapi_now())`;
  if (etag === null) return { text: `${insert} on conflict (_key) do nothing returning _etag`, values: [key, json] };
  if (etag === undefined) {
    const replace = 'set _value = excluded._value, _etag = excluded._etag, _mtime = excluded._mtime';
    return { text: `${insert} on conflict (_key) do update ${replace} returning _etag`, values: [key, json] };
  }
  return {
    text: `
      update ${table} set _value = $2::text::jsonb, _etag = ${newEtag('$2::text')}, _mtime = cnapi_now()
      where _key = $1::text and _etag = $3::text returning _etag`,
    values: [key, json, etag],
  };
}

/**
 * Inserts the objects whose keys and unique fields are free, in key order, so that two such
 * statements cannot deadlock. Returns their keys and etags.
 */
export function createManyStatement(
  bucket: DocumentBucket,
  keys: readonly string[],
  jsons: readonly string[],
): Statement {
  const text = `
    insert into ${quoteName(bucket.name)} (_key, _value, _etag, _mtime)
    select n.key, n.json::jsonb, ${newEtag('n.json')}, cnapi_now()
      from unnest($1::text[], $2::text[]) as n (key, json) order by n.key
    on conflict do nothing returning _key, _etag`;
  return { text, values: [keys, jsons] };
}

export function deleteStatement(bucket: DocumentBucket, key: string, etag: string | undefined): Statement {
  const text = `delete from ${quoteName(bucket.name)} where _key = $1::text`;
  return etag === undefined ? { text, values: [key] } : { text: `${text} and _etag = $2::text`, values: [key, etag] };
}

export function etagStatement(bucket: DocumentBucket, key: string): Statement {
  return { text: `select _etag from ${quoteName(bucket.name)} where _key = $1::text`, values: [key] };
}

/** Locks those of `keys` that exist, in key order. */
export function lockStatement(bucket: DocumentBucket, keys: readonly string[]): Statement {
  const text = `select from ${quoteName(bucket.name)} where _key = any($1::text[]) order by _key for update`;
  return { text, values: [keys] };
}

/**
 * Merges `json` over each value's top level. Rows are locked in key order and matched again once
 * locked.
 */
export function updateManyStatement(bucket: DocumentBucket, filter: Filter, json: string): Statement {
  const table = quoteName(bucket.name);
  const parameters = new Parameters();
  const fields = parameters.add(json, 'text');
  return {
    text: `
      with chosen as (${chosen(bucket, filter, undefined, parameters)})
      update ${table} set _value = _value || ${fields}::jsonb, _etag = ${newEtag(fields)}, _mtime = cnapi_now()
      where _id in (select _id from chosen)`,
    values: parameters.values,
  };
}

export function deleteManyStatement(bucket: DocumentBucket, filter: Filter, limit: number | undefined): Statement {
  const parameters = new Parameters();
  return {
    text: `
      with chosen as (${chosen(bucket, filter, limit, parameters)})
      delete from ${quoteName(bucket.name)} where _id in (select _id from chosen)`,
    values: parameters.values,
  };
}

function chosen(bucket: DocumentBucket, filter: Filter, limit: number | undefined, parameters: Parameters): string {
  const condition = filterCondition(filter, bucket, parameters);
  const bound = limit === undefined ? '' : `limit ${parameters.add(wholeNumber('limit', limit), 'bigint')}`;
  return `select _id from ${quoteName(bucket.name)} where ${condition} order by _key ${bound} for update`;
}

function objectColumns(bucket: Bucket): string {
  if (bucket.kind === 'document') return '_key, _value, _etag, _mtime';
  const { key, etag, mtime } = bucket;
  return `(${key.sql})::text as _key, ${composedValue(bucket)} as _value, (${etag})::text as _etag, (${mtime}) as _mtime`;
}

function composedValue({ valueFields }: ColumnsBucket): string {
  const pairs = [...valueFields].map(
    ([name, { type, sql }]) => `${quoteText(name)}, ${type === 'timestamp' ? isoText(sql) : sql}`,
  );
  return `jsonb_build_object(${pairs.join(', ')})`;
}

/** The format of Date.toISOString, which all timestamps on the wire have. */
function isoText(sql: string): string {
  return `to_char((${sql}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
}

function orderOf(bucket: Bucket, sort: readonly Sort[]): string {
  const unindexed = sort.map(({ field }) => field).filter((field) => !bucket.fields.has(field));
  if (unindexed.length > 0) throw new NotIndexedError(bucket.name, unindexed);
  const terms = sort.map(({ field, order }) => `${bucket.fields.get(field)?.sql} ${order === 'desc' ? 'desc' : 'asc'}`);
  return [...terms, bucket.kind === 'document' ? '_id' : bucket.key.sql].join(', ');
}

function keyOf(bucket: Bucket): QueryField {
  return bucket.kind === 'document' ? { type: 'string', sql: '_key' } : bucket.key;
}

function wholeNumber(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new InvalidQueryError(`${name} must be a whole number from 0`, { field: name });
}
