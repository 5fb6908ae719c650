/**
 * The statements of the bucket store. Pure: declarations and values in, SQL text and parameters
 * out.
 */
import {
  combineStatement,
  quoteName,
  SqlParameters,
  type Statement,
  type StatementPart,
} from '../postgres/sql-text.ts';
import type { DocumentBucket } from './bucket.ts';
import type { Filter } from './filter.ts';
import { filterCondition } from './filter-sql.ts';
import { InvalidQueryError, NotIndexedError } from './moray-errors.ts';

export interface PageOptions {
  /** The most objects of the page. */
  limit: number;
  /** Only objects whose keys come after this one. */
  after?: string | undefined;
  /**
   * The page ends before the object that would make its values longer than this; it has at least
   * one.
   */
  bytes: number;
}

const COLUMNS = '_key, _value, _etag, _mtime';

export function getManyStatement(bucket: DocumentBucket, keys: readonly string[]): Statement {
  return { text: `select ${COLUMNS} from ${quoteName(bucket.name)} where _key = any($1::text[])`, values: [keys] };
}

/**
 * Selects a page of documents in order of key. `read` is the number of rows before the page was
 * limited to `bytes`, at most `limit` + 1.
 */
export function pageStatement(bucket: DocumentBucket, filter: Filter, { limit, after, bytes }: PageOptions): Statement {
  const parameters = new SqlParameters();
  const conditions = [filterCondition(filter, bucket, parameters)];
  if (after !== undefined) conditions.push(`_key > ${parameters.add(after, 'text')}`);
  const text = `
    select ${COLUMNS}, read from (
      select ${COLUMNS}, count(*) over () as read, coalesce(
          sum(bytes) over (order by _key rows between unbounded preceding and 1 preceding), 0) as bytes_before
        from (
          select ${COLUMNS}, octet_length(_value::text) as bytes from ${quoteName(bucket.name)}
            where ${conditions.join(' and ')}
            order by _key limit ${parameters.add(wholeNumber('limit', limit) + 1, 'bigint')}) as found) as measured
      where bytes_before < ${parameters.add(bytes, 'bigint')} order by _key`;
  return { text, values: parameters.values };
}

/** How many objects have each value of the field; those without one are not counted. */
export function countByStatement(bucket: DocumentBucket, field: string): Statement {
  const found = bucket.fields.get(field);
  if (found === undefined) throw new NotIndexedError(bucket.name, [field]);
  const text = `
    select (${found.sql})::text as value, count(*) as count from ${quoteName(bucket.name)}
      where ${found.sql} is not null group by 1`;
  return { text, values: [] };
}

/** Etags come from one sequence and are hashed with the value, so no two writes share one. */
const newEtag = (written: string) => `md5(nextval('cnapi_etag')::text || ${written})`;

/**
 * One statement for each kind of condition. It returns no row when the condition does not hold.
 * @param etag undefined: no condition; null: the key must not exist; else the etag must match
 */
export function putStatement(
  bucket: DocumentBucket,
  { key, json, etag }: { key: string; json: string; etag: string | null | undefined },
  also?: StatementPart,
): Statement {
  const parameters = new SqlParameters();
  const table = quoteName(bucket.name);
  const [keyText, value] = [parameters.add(key, 'text'), parameters.add(json, 'text')];
  if (typeof etag === 'string') {
    const update = `
      update ${table} set _value = ${value}::jsonb, _etag = ${newEtag(value)}, _mtime = cnapi_now()
        where _key = ${keyText} and _etag = ${parameters.add(etag, 'text')} returning _etag`;
    return combineStatement(update, parameters, also);
  }
  const conflict =
    etag === null
      ? 'do nothing'
      : 'do update set _value = excluded._value, _etag = excluded._etag, _mtime = excluded._mtime';
  const insert = `
    insert into ${table} (_key, _value, _etag, _mtime)
      values (${keyText}, ${value}::jsonb, ${newEtag(value)}, cnapi_now())
      on conflict (_key) ${conflict} returning _etag`;
  return combineStatement(insert, parameters, also);
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

export function deleteStatement(
  bucket: DocumentBucket,
  { key, etag }: { key: string; etag: string | undefined },
  also?: StatementPart,
): Statement {
  const parameters = new SqlParameters();
  const conditions = [`_key = ${parameters.add(key, 'text')}`];
  if (etag !== undefined) conditions.push(`_etag = ${parameters.add(etag, 'text')}`);
  const text = `delete from ${quoteName(bucket.name)} where ${conditions.join(' and ')}`;
  return combineStatement(text, parameters, also);
}

function wholeNumber(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new InvalidQueryError(`${name} must be a whole number from 0`, { field: name });
}
