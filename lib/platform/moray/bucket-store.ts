/**
 * The bucket store: objects under keys, with conditional writes by etag and search by indexed
 * fields. Called by the nouns' stores and by the routes that list things. Every write is one
 * statement. Only `batch` and `ensureBucket` hold a transaction (law 5); they touch no coordination
 * row.
 */
import { DatabaseBusyError } from '../errors.ts';
import { type Database, type Queryable, sqlStateOf } from '../postgres/database.ts';
import type { Bucket, BucketObject, DocumentBucket } from './bucket.ts';
import {
  createMany,
  type DeleteOptions,
  deleteMany,
  explained,
  lockNamed,
  type Operation,
  type OperationResult,
  type PutOptions,
  perform,
  put,
  remove,
  run,
  updateMany,
} from './bucket-operations.ts';
import { ensureTable } from './bucket-schema.ts';
import { countStatement, type FindOptions, findStatement, getManyStatement, getStatement } from './bucket-sql.ts';
import { parseFieldText } from './field-type.ts';
import type { Filter } from './filter.ts';
import { InvalidQueryError, ObjectNotFoundError, UniqueAttributeError } from './moray-errors.ts';

interface Row {
  _key: string;
  _value: unknown;
  _etag: string;
  _mtime: Date;
}

const batchMaxOperations = 1_000;
const writeAttempts = 3;

export class BucketStore {
  readonly #database: Database;

  constructor({ database }: { database: Database }) {
    this.#database = database;
  }

  /**
   * Creates the bucket's table, or adds the indexes that this version declares and the table lacks.
   */
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

  /** The objects that exist, by key. `connection`: the one to use instead of the pool. */
  async getMany<Value = Record<string, unknown>>(
    bucket: DocumentBucket,
    keys: readonly string[],
    connection: Queryable = this.#database,
  ): Promise<Map<string, BucketObject<Value>>> {
    const { rows } = await run<Row>(connection, bucket, getManyStatement(bucket, keys));
    return new Map(rows.map((row) => [row._key, objectOf<Value>(bucket, row)]));
  }

  /**
   * Creates, in one statement, the objects whose keys and unique fields are free. Returns the new
   * etags by key; the other objects are left as they are. `connection` as in `getMany`.
   * @throws InvalidQueryError when a field is not of its index's type; then nothing is created
   */
  async createMany(
    bucket: DocumentBucket,
    objects: ReadonlyMap<string, object>,
    connection: Queryable = this.#database,
  ): Promise<Map<string, string>> {
    return createMany(connection, bucket, objects);
  }

  /**
   * Stores `value` and returns its new etag.
   * @throws EtagConflictError, UniqueAttributeError; InvalidQueryError when a field is not of its
   * index's type.
   */
  async put(bucket: DocumentBucket, key: string, value: object, options: PutOptions = {}): Promise<{ etag: string }> {
    return again(() => put(this.#database, bucket, key, value, options));
  }

  /** @throws ObjectNotFoundError, EtagConflictError */
  async delete(bucket: DocumentBucket, key: string, options: DeleteOptions = {}): Promise<void> {
    await remove(this.#database, bucket, key, options);
  }

  /**
   * Yields matching objects in order, read while the loop runs. A loop that takes longer than the
   * database's statement timeout in total loses its cursor.
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

  /** Merges `fields` over the top level of all matching objects; returns their number. */
  async updateMany(bucket: DocumentBucket, filter: Filter, fields: object): Promise<number> {
    return updateMany(this.#database, bucket, filter, fields);
  }

  /** Deletes matching objects (at most `limit`, in key order); returns their number. */
  async deleteMany(bucket: DocumentBucket, filter: Filter, options: { limit?: number } = {}): Promise<number> {
    return deleteMany(this.#database, bucket, filter, options.limit);
  }

  /**
   * Performs all operations in order, or none. The first failure undoes the others and is thrown.
   */
  async batch(operations: readonly Operation[]): Promise<OperationResult[]> {
    if (operations.length > batchMaxOperations)
      throw new InvalidQueryError(`a batch has at most ${batchMaxOperations} operations`);
    return again(() =>
      this.#database.transaction(async (connection) => {
        await lockNamed(connection, operations);
        const results: OperationResult[] = [];
        for (const operation of operations) results.push(await perform(connection, operation));
        return results;
      }),
    );
  }
}

/** Repeats `work`, which writes all or nothing, after an error that may be temporary. */
async function again<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (!mayPass(error) || attempt === writeAttempts) throw error;
    }
  }
}

/**
 * A deadlock is temporary. When two statements insert one key at once, Postgres may first report a
 * conflict on another unique field, which `on conflict (_key)` does not catch. A retry finds the
 * key.
 */
function mayPass(error: unknown): boolean {
  const state = sqlStateOf(error instanceof DatabaseBusyError ? error.cause : error);
  return state === '40P01' || error instanceof UniqueAttributeError;
}

function objectOf<Value>(bucket: Bucket, row: Row): BucketObject<Value> {
  return { bucket: bucket.name, key: row._key, value: row._value as Value, etag: row._etag, mtime: row._mtime };
}
