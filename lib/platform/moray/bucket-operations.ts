/**
 * The writes of the bucket store. Each is one statement on a given connection: the pool, or a
 * batch's transaction. Called by `bucket-store.ts`, which documents their meaning and errors.
 */

import { type Queryable, type QueryResult, sqlStateOf } from '../postgres/database.ts';
import { type Bucket, checkIndexed, checkKey, type DocumentBucket } from './bucket.ts';
import { uniqueIndexName } from './bucket-schema.ts';
import {
  createManyStatement,
  deleteManyStatement,
  deleteStatement,
  etagStatement,
  lockStatement,
  putStatement,
  updateManyStatement,
} from './bucket-sql.ts';
import type { Filter } from './filter.ts';
import { EtagConflictError, InvalidQueryError, ObjectNotFoundError, UniqueAttributeError } from './moray-errors.ts';
import type { Statement } from './sql-text.ts';

export interface PutOptions {
  /**
   * The etag that must match; null: the key must not exist; undefined: replaces whatever exists.
   */
  etag?: string | null | undefined;
}

export interface DeleteOptions {
  etag?: string | undefined;
}

export type Operation =
  | { kind: 'put'; bucket: DocumentBucket; key: string; value: object; etag?: string | null }
  | { kind: 'delete'; bucket: DocumentBucket; key: string; etag?: string }
  | { kind: 'updateMany'; bucket: DocumentBucket; filter: Filter; fields: object }
  | { kind: 'deleteMany'; bucket: DocumentBucket; filter: Filter; limit?: number };

/** A put's new etag, or how many objects the others touched. */
export type OperationResult = { etag: string } | { count: number };

interface EtagRow {
  _etag: string;
}

/**
 * Locks the keys that the operations name, in order of bucket and key, so two batches cannot
 * deadlock on them.
 */
export async function lockNamed(connection: Queryable, operations: readonly Operation[]): Promise<void> {
  const named = operations.filter((one) => one.kind === 'put' || one.kind === 'delete');
  const byBucket = [...Map.groupBy(named, (one) => one.bucket)].sort(([a], [b]) => (a.name < b.name ? -1 : 1));
  for (const [bucket, ofBucket] of byBucket) {
    for (const { key } of ofBucket) checkKey(bucket, key);
    await run(
      connection,
      bucket,
      lockStatement(
        bucket,
        ofBucket.map(({ key }) => key),
      ),
    );
  }
}

export async function perform(connection: Queryable, operation: Operation): Promise<OperationResult> {
  switch (operation.kind) {
    case 'put':
      return put(connection, operation.bucket, operation.key, operation.value, operation);
    case 'delete':
      await remove(connection, operation.bucket, operation.key, operation);
      return { count: 1 };
    case 'updateMany':
      return { count: await updateMany(connection, operation.bucket, operation.filter, operation.fields) };
    case 'deleteMany':
      return { count: await deleteMany(connection, operation.bucket, operation.filter, operation.limit) };
    default:
      return operation satisfies never;
  }
}

export async function put(
  connection: Queryable,
  bucket: DocumentBucket,
  key: string,
  value: object,
  { etag }: PutOptions,
): Promise<{ etag: string }> {
  checkKey(bucket, key);
  checkIndexed(bucket, value);
  const { rows } = await run<EtagRow>(connection, bucket, putStatement(bucket, key, JSON.stringify(value), etag));
  if (rows[0] !== undefined) return { etag: rows[0]._etag };
  throw new EtagConflictError(bucket.name, key, etag ?? null, await currentEtag(connection, bucket, key));
}

/** Returns the etags by key of the objects that were created. */
export async function createMany(
  connection: Queryable,
  bucket: DocumentBucket,
  objects: ReadonlyMap<string, object>,
): Promise<Map<string, string>> {
  for (const [key, value] of objects) {
    checkKey(bucket, key);
    checkIndexed(bucket, value);
  }
  const jsons = [...objects.values()].map((value) => JSON.stringify(value));
  const statement = createManyStatement(bucket, [...objects.keys()], jsons);
  const { rows } = await run<EtagRow & { _key: string }>(connection, bucket, statement);
  return new Map(rows.map((row) => [row._key, row._etag]));
}

export async function remove(
  connection: Queryable,
  bucket: DocumentBucket,
  key: string,
  { etag }: DeleteOptions,
): Promise<void> {
  checkKey(bucket, key);
  const { rowCount } = await run(connection, bucket, deleteStatement(bucket, key, etag));
  if (rowCount > 0) return;
  const actual = etag === undefined ? null : await currentEtag(connection, bucket, key);
  if (actual === null) throw new ObjectNotFoundError(bucket.name, key);
  throw new EtagConflictError(bucket.name, key, etag ?? null, actual);
}

export async function updateMany(
  connection: Queryable,
  bucket: DocumentBucket,
  filter: Filter,
  fields: object,
): Promise<number> {
  checkIndexed(bucket, fields);
  return (await run(connection, bucket, updateManyStatement(bucket, filter, JSON.stringify(fields)))).rowCount;
}

export async function deleteMany(
  connection: Queryable,
  bucket: DocumentBucket,
  filter: Filter,
  limit: number | undefined,
): Promise<number> {
  return (await run(connection, bucket, deleteManyStatement(bucket, filter, limit))).rowCount;
}

async function currentEtag(connection: Queryable, bucket: DocumentBucket, key: string): Promise<string | null> {
  return (await run<EtagRow>(connection, bucket, etagStatement(bucket, key))).rows[0]?._etag ?? null;
}

export async function run<Row>(
  connection: Queryable,
  bucket: Bucket,
  { text, values }: Statement,
): Promise<QueryResult<Row>> {
  try {
    return await connection.query<Row>(text, values);
  } catch (error) {
    throw explained(bucket, error);
  }
}

/** Maps errors that the caller caused to the store's own; returns any other error unchanged. */
export function explained(bucket: Bucket, error: unknown): unknown {
  const state = sqlStateOf(error);
  if (state === '23505' && bucket.kind === 'document') {
    const { constraint } = error as { constraint?: string };
    const field = Object.keys(bucket.indexes).find((one) => uniqueIndexName(bucket.name, one) === constraint);
    return new UniqueAttributeError(bucket.name, field ?? constraint ?? 'a field', error);
  }
  // Class 22: data that SQL cannot store, such as NUL in a text. 54000: too long for its index.
  const isUnfit = state !== undefined && (state.startsWith('22') || state === '54000');
  return isUnfit ? new InvalidQueryError(`${bucket.name}: ${(error as Error).message}`, { cause: error }) : error;
}
