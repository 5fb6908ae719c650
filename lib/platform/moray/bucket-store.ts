/**
 * The bucket store: objects under keys, with conditional writes by etag and search by indexed
 * fields. Called by the nouns' stores and by `control/documents`. Every write is one statement;
 * another write, such as a record of the audit, may be part of it (`also`), so that both commit or
 * neither does. Only `ensureBucket` holds a transaction (law 5); it touches no coordination row.
 */
import { DatabaseBusyError } from '../errors.ts';
import { type Database, type Queryable, type QueryResult, sqlStateOf } from '../postgres/database.ts';
import type { Statement, StatementPart } from '../postgres/sql-text.ts';
import { type BucketObject, checkIndexed, checkKey, type DocumentBucket } from './bucket.ts';
import { ensureTable, uniqueIndexName, uniqueTogetherName } from './bucket-schema.ts';
import {
  countByStatement,
  createManyStatement,
  deleteStatement,
  getManyStatement,
  type PageOptions,
  pageStatement,
  putStatement,
} from './bucket-sql.ts';
import type { Filter } from './filter.ts';
import { EtagConflictError, InvalidQueryError, ObjectNotFoundError, UniqueAttributeError } from './moray-errors.ts';

interface EtagRow {
  _etag: string;
}

interface Row extends EtagRow {
  _key: string;
  _value: unknown;
  _mtime: Date;
}

interface WriteOptions {
  /**
   * Carried out by the same statement, also if the condition does not hold and nothing is written.
   */
  also?: StatementPart | undefined;
}

interface PutOptions extends WriteOptions {
  /**
   * The etag that must match; null: the key must not exist; undefined: replaces whatever exists.
   */
  etag?: string | null | undefined;
}

interface DeleteOptions extends WriteOptions {
  etag?: string | undefined;
}

export interface BucketPage<Value> {
  objects: BucketObject<Value>[];
  /** The key after which the next page begins; undefined when there are no more. */
  next: string | undefined;
}

const WRITE_ATTEMPTS = 3;

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
  async get<Value = Record<string, unknown>>(bucket: DocumentBucket, key: string): Promise<BucketObject<Value>> {
    // No key contains NUL, and the database refuses such a text.
    const found = key.includes('\0') ? undefined : (await this.getMany<Value>(bucket, [key])).get(key);
    if (found === undefined) throw new ObjectNotFoundError(bucket.name, key);
    return found;
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
    for (const [key, value] of objects) {
      checkKey(bucket, key);
      checkIndexed(bucket, value);
    }
    const jsons = [...objects.values()].map((value) => JSON.stringify(value));
    const statement = createManyStatement(bucket, [...objects.keys()], jsons);
    const { rows } = await run<EtagRow & { _key: string }>(connection, bucket, statement);
    return new Map(rows.map((row) => [row._key, row._etag]));
  }

  /**
   * Stores `value` and returns its new etag.
   * @throws EtagConflictError, UniqueAttributeError; InvalidQueryError when a field is not of its
   * index's type.
   */
  async put(
    bucket: DocumentBucket,
    key: string,
    value: object,
    { etag, also }: PutOptions = {},
  ): Promise<{ etag: string }> {
    checkKey(bucket, key);
    checkIndexed(bucket, value);
    const statement = putStatement(bucket, { key, json: JSON.stringify(value), etag }, also);
    const { rows } = await again(() => run<EtagRow>(this.#database, bucket, statement));
    if (rows[0] !== undefined) return { etag: rows[0]._etag };
    throw new EtagConflictError(bucket.name, key, etag ?? null, await this.#etagOf(bucket, key));
  }

  /** @throws ObjectNotFoundError, EtagConflictError */
  async delete(bucket: DocumentBucket, key: string, { etag, also }: DeleteOptions = {}): Promise<void> {
    const { rowCount } = await run(this.#database, bucket, deleteStatement(bucket, { key, etag }, also));
    if (rowCount > 0) return;
    const actual = etag === undefined ? null : await this.#etagOf(bucket, key);
    if (actual === null) throw new ObjectNotFoundError(bucket.name, key);
    throw new EtagConflictError(bucket.name, key, etag ?? null, actual);
  }

  /**
   * The matching objects, in order of key, page by page.
   * @throws NotIndexedError, InvalidQueryError
   */
  async page<Value = Record<string, unknown>>(
    bucket: DocumentBucket,
    filter: Filter,
    options: PageOptions,
  ): Promise<BucketPage<Value>> {
    const statement = pageStatement(bucket, filter, options);
    const { rows } = await run<Row & { read: number }>(this.#database, bucket, statement);
    const objects = rows.slice(0, options.limit).map((row) => objectOf<Value>(bucket, row));
    const isLast = objects.length === (rows[0]?.read ?? 0);
    return { objects, next: isLast ? undefined : objects.at(-1)?.key };
  }

  /** How many objects have each value of an indexed field. @throws NotIndexedError */
  async countBy(bucket: DocumentBucket, field: string): Promise<Record<string, number>> {
    const { rows } = await run<{ value: string; count: number }>(
      this.#database,
      bucket,
      countByStatement(bucket, field),
    );
    return Object.fromEntries(rows.map(({ value, count }) => [value, count]));
  }

  async #etagOf(bucket: DocumentBucket, key: string): Promise<string | null> {
    return (await this.getMany(bucket, [key])).get(key)?.etag ?? null;
  }
}

async function run<Row>(
  connection: Queryable,
  bucket: DocumentBucket,
  { text, values }: Statement,
): Promise<QueryResult<Row>> {
  try {
    return await connection.query<Row>(text, values);
  } catch (error) {
    throw explained(bucket, error);
  }
}

/** Maps errors that the caller caused to the store's own; returns any other error unchanged. */
function explained(bucket: DocumentBucket, error: unknown): unknown {
  const state = sqlStateOf(error);
  if (state === '23505') {
    const { constraint } = error as { constraint?: string };
    return new UniqueAttributeError(uniqueFieldsOf(bucket, constraint), error);
  }
  // Class 22: data that SQL cannot store, such as NUL in a text. 54000: too long for its index.
  const isUnfit = state !== undefined && (state.startsWith('22') || state === '54000');
  return isUnfit ? new InvalidQueryError(`${bucket.name}: ${(error as Error).message}`, { cause: error }) : error;
}

/** The field whose value is taken, or the fields. */
function uniqueFieldsOf(
  { name, indexes, uniqueTogether = [] }: DocumentBucket,
  constraint = 'a field',
): readonly string[] {
  const field = Object.keys(indexes).find((one) => uniqueIndexName(name, one) === constraint);
  if (field !== undefined) return [field];
  return uniqueTogether.find((several) => uniqueTogetherName(name, several) === constraint) ?? [constraint];
}

/** Repeats `work`, which writes all or nothing, after an error that may be temporary. */
async function again<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (!mayPass(error) || attempt === WRITE_ATTEMPTS) throw error;
    }
  }
}

/**
 * A deadlock is temporary. When two statements insert one key concurrently, Postgres may first
 * report a conflict on another unique field, which `on conflict (_key)` does not catch. A retry
 * finds the key.
 */
function mayPass(error: unknown): boolean {
  const state = sqlStateOf(error instanceof DatabaseBusyError ? error.cause : error);
  return state === '40P01' || error instanceof UniqueAttributeError;
}

function objectOf<Value>(bucket: DocumentBucket, row: Row): BucketObject<Value> {
  return { bucket: bucket.name, key: row._key, value: row._value as Value, etag: row._etag, mtime: row._mtime };
}
