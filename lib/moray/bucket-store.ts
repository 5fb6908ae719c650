/**
 * The bucket store: objects under keys, with conditional writes by etag, found by indexed fields. Called by the nouns'
 * stores and by the edges that list things. Every write is one statement; only `batch` and `ensureBucket` hold a
 * transaction (law 5), and touch no row of coordination.
 */
import { type Bucket, type BucketObject, checkIndexed, checkKey, type DocumentBucket } from './bucket.ts';
import { ensureTable, uniqueIndexName } from './bucket-schema.ts';
import {
  countStatement,
  deleteManyStatement,
  deleteStatement,
  etagStatement,
  type FindOptions,
  findStatement,
  getStatement,
  putStatement,
  updateManyStatement,
} from './bucket-sql.ts';
import { type Database, type Queryable, sqlStateOf } from './database.ts';
import { parseFieldText } from './field-type.ts';
import type { Filter } from './filter.ts';
import { EtagConflictError, InvalidQueryError, ObjectNotFoundError, UniqueAttributeError } from './moray-errors.ts';
import type { Statement } from './sql-text.ts';

export interface PutOptions {
  /** The etag that must be there; null: the key must not exist. Without it, whatever is there is replaced. */
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

interface Row {
  _key: string;
  _value: unknown;
  _etag: string;
  _mtime: Date;
}

export const batchMaxOperations = 1_000;
const batchAttempts = 3;

export class BucketStore {
  readonly #database: Database;

  constructor({ database }: { database: Database }) {
    this.#database = database;
  }

  /** Creates the bucket's table, or adds the indexes that this version declares and the table lacks. */
  async ensureBucket(bucket: DocumentBucket): Promise<void> {
    await ensureTable(this.#database, bucket);
  }

  /** @throws ObjectNotFoundError */
  async get<Value = Record<string, unknown>>(bucket: Bucket, key: string): Promise<BucketObject<Value>> {
    const keyValue = parseFieldText(bucket.kind === 'document' ? 'string' : bucket.key.type, key);
    if (keyValue === undefined) throw new ObjectNotFoundError(bucket.name, key);
    const { rows } = await run<Row>(this.#database, bucket, getStatement(bucket, keyValue));
    if (rows[0] === undefined) throw new ObjectNotFoundError(bucket.name, key);
    return objectOf<Value>(bucket, rows[0]);
  }

  /**
   * Stores `value` and returns its new etag.
   * @throws EtagConflictError, UniqueAttributeError; InvalidQueryError when a field is not of its index's type.
   */
  async put(bucket: DocumentBucket, key: string, value: object, options: PutOptions = {}): Promise<{ etag: string }> {
    return put(this.#database, bucket, key, value, options);
  }

  /** @throws ObjectNotFoundError, EtagConflictError */
  async delete(bucket: DocumentBucket, key: string, options: DeleteOptions = {}): Promise<void> {
    await remove(this.#database, bucket, key, options);
  }

  /**
   * What matches, in order, read as the loop goes. A loop that takes longer than the database's statement timeout in
   * all loses its cursor.
   * @throws NotIndexedError, InvalidQueryError
   */
  async *find<Value = Record<string, unknown>>(
    bucket: Bucket,
    filter: Filter,
    options: FindOptions = {},
  ): AsyncGenerator<BucketObject<Value>, void, undefined> {
    const { text, values } = findStatement(bucket, filter, options);
    try {
      for await (const row of this.#database.stream<Row>(text, values)) yield objectOf<Value>(bucket, row);
    } catch (error) {
      throw explained(bucket, error);
    }
  }

  async count(bucket: Bucket, filter: Filter): Promise<number> {
    const { rows } = await run<{ count: number }>(this.#database, bucket, countStatement(bucket, filter));
    return rows[0]?.count ?? 0;
  }

  /** Merges `fields` over the top level of all that match; returns how many. */
  async updateMany(bucket: DocumentBucket, filter: Filter, fields: object): Promise<number> {
    return updateMany(this.#database, bucket, filter, fields);
  }

  /** Deletes what matches (at most `limit`, in order of key); returns how many. */
  async deleteMany(bucket: DocumentBucket, filter: Filter, options: { limit?: number } = {}): Promise<number> {
    return deleteMany(this.#database, bucket, filter, options.limit);
  }

  /** All of the operations in their order, or none: the first that fails undoes the others and is what is thrown. */
  async batch(operations: readonly Operation[]): Promise<OperationResult[]> {
    if (operations.length > batchMaxOperations)
      throw new InvalidQueryError(`a batch has at most ${batchMaxOperations} operations`);
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#database.transaction(async (connection) => {
          const results: OperationResult[] = [];
          for (const operation of operations) results.push(await perform(connection, operation));
          return results;
        });
      } catch (error) {
        if (sqlStateOf(error) !== deadlockDetected || attempt === batchAttempts) throw error;
      }
    }
  }
}

const deadlockDetected = '40P01';

async function perform(connection: Queryable, operation: Operation): Promise<OperationResult> {
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

async function put(
  connection: Queryable,
  bucket: DocumentBucket,
  key: string,
  value: object,
  { etag }: PutOptions,
): Promise<{ etag: string }> {
  checkKey(bucket, key);
  checkIndexed(bucket, value);
  const { rows } = await run<Row>(connection, bucket, putStatement(bucket, key, JSON.stringify(value), etag));
  if (rows[0] !== undefined) return { etag: rows[0]._etag };
  throw new EtagConflictError(bucket.name, key, etag ?? null, await currentEtag(connection, bucket, key));
}

async function remove(
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

async function updateMany(
  connection: Queryable,
  bucket: DocumentBucket,
  filter: Filter,
  fields: object,
): Promise<number> {
  checkIndexed(bucket, fields);
  return (await run(connection, bucket, updateManyStatement(bucket, filter, JSON.stringify(fields)))).rowCount;
}

async function deleteMany(
  connection: Queryable,
  bucket: DocumentBucket,
  filter: Filter,
  limit: number | undefined,
): Promise<number> {
  return (await run(connection, bucket, deleteManyStatement(bucket, filter, limit))).rowCount;
}

async function currentEtag(connection: Queryable, bucket: DocumentBucket, key: string): Promise<string | null> {
  return (await run<Row>(connection, bucket, etagStatement(bucket, key))).rows[0]?._etag ?? null;
}

async function run<R>(connection: Queryable, bucket: Bucket, { text, values }: Statement) {
  try {
    return await connection.query<R>(text, values);
  } catch (error) {
    throw explained(bucket, error);
  }
}

/** The store's own error for what a caller caused; anything else as it is. */
function explained(bucket: Bucket, error: unknown): unknown {
  const state = sqlStateOf(error);
  if (state === '23505' && bucket.kind === 'document') {
    const { constraint } = error as { constraint?: string };
    const field = Object.keys(bucket.indexes).find((one) => uniqueIndexName(bucket.name, one) === constraint);
    return new UniqueAttributeError(bucket.name, field ?? constraint ?? 'a field', error);
  }
  // Class 22: data that SQL cannot hold, such as NUL in a text. 54000: too long for its index.
  const isUnfit = state !== undefined && (state.startsWith('22') || state === '54000');
  return isUnfit ? new InvalidQueryError(`${bucket.name}: ${(error as Error).message}`, { cause: error }) : error;
}

function objectOf<Value>(bucket: Bucket, row: Row): BucketObject<Value> {
  return { bucket: bucket.name, key: row._key, value: row._value as Value, etag: row._etag, mtime: row._mtime };
}
