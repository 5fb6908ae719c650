/**
 * The declaration of a bucket, made once at start by the noun that owns the bucket. Pure. A bucket
 * is a table of the store: a JSON value per key, and a column per index. The database derives the
 * columns from the value, so instances of any version keep all indexes correct.
 */
import { quoteName } from '../postgres/sql-text.ts';
import { type FieldType, isIndexable } from './field-type.ts';
import type { QueryField, QueryTarget } from './filter-sql.ts';
import { InvalidQueryError } from './moray-errors.ts';

export interface IndexDeclaration {
  type: FieldType;
  unique?: boolean;
}

export interface DocumentDeclaration {
  name: string;
  /**
   * Incremented whenever `indexes` or `uniqueTogether` grows or `onChange` changes. Indexes are
   * only ever added.
   */
  version: number;
  indexes: Record<string, IndexDeclaration>;
  /** Lists of indexed fields: no two objects have the same values of all fields of a list. */
  uniqueTogether?: readonly (readonly string[])[];
  /**
   * A trigger that runs for each change of a document, in its transaction, whichever instance makes
   * it, whatever its version.
   */
  onChange?: TriggerDeclaration;
}

export interface TriggerDeclaration {
  /** A function of the database. */
  name: string;
  arguments: readonly string[];
}

export interface DocumentBucket extends QueryTarget, Readonly<DocumentDeclaration> {}

/** A stored object. */
export interface BucketObject<Value = Record<string, unknown>> {
  bucket: string;
  key: string;
  value: Value;
  /** Changes with each write; opaque. */
  etag: string;
  /** Time of the last write, by the database's clock. */
  mtime: Date;
}

const KEY_MAX_LENGTH = 512;

/** Filters may also use `_key` and `_mtime`. */
export function documentBucket(declaration: DocumentDeclaration): DocumentBucket {
  checkBucketName(declaration.name);
  const fields = new Map<string, QueryField>([
    ['_key', { type: 'string', sql: '_key' }],
    ['_mtime', { type: 'timestamp', sql: '_mtime' }],
  ]);
  for (const [name, { type }] of Object.entries(declaration.indexes)) {
    checkFieldName(name);
    fields.set(name, { type, sql: quoteName(name) });
  }
  return Object.freeze({ ...declaration, fields });
}

/** @throws InvalidQueryError naming the first field whose index cannot hold its value */
export function checkIndexed(bucket: DocumentBucket, value: object): void {
  for (const [field, { type }] of Object.entries(bucket.indexes)) {
    if (!isIndexable(type, (value as Record<string, unknown>)[field])) {
      throw new InvalidQueryError(`${field} in ${bucket.name} must be a ${type}`, { field });
    }
  }
}

/** @throws InvalidQueryError */
export function checkKey(bucket: DocumentBucket, key: string): void {
  if (key.length === 0 || key.length > KEY_MAX_LENGTH || key.includes('\0')) {
    throw new InvalidQueryError(`a key in ${bucket.name} has 1 to ${KEY_MAX_LENGTH} characters, none of them NUL`);
  }
}

function checkBucketName(name: string): void {
  if (!/^[a-z][a-z0-9_]{0,29}$/.test(name)) throw new TypeError(`'${name}' cannot be a bucket's name`);
}

function checkFieldName(name: string): void {
  if (!/^[a-zA-Z][a-zA-Z0-9_]{0,27}$/.test(name)) throw new TypeError(`'${name}' cannot be a field's name`);
}
