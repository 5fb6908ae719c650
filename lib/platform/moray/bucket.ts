/**
 * The declaration of a bucket, made once at start by the noun that owns the bucket. Pure. Two
 * kinds:
 *
 * - a *document* bucket is a table of the store: a JSON value per key, and a column per index. The
 *   database derives the columns from the value, so instances of any version keep all indexes
 *   correct.
 * - a *columns* bucket is a table of another owner whose fields are all columns. The store only
 *   reads it.
 */
import { type FieldType, isIndexable } from './field-type.ts';
import type { QueryField, QueryTarget } from './filter-sql.ts';
import { InvalidQueryError } from './moray-errors.ts';
import { quoteName } from './sql-text.ts';

export interface IndexDeclaration {
  type: FieldType;
  unique?: boolean;
}

export interface DocumentDeclaration {
  name: string;
  /** Incremented whenever `indexes` grows. Indexes are only ever added. */
  version: number;
  indexes: Record<string, IndexDeclaration>;
}

interface ColumnsDeclaration {
  /** Also the name of the table. */
  name: string;
  /** The field whose column is the key. */
  key: string;
  /** Each field's type, and its SQL if that is not the column of the same name. */
  fields: Record<string, { type: FieldType; sql?: string }>;
  /** SQL over the row: a text that changes with each write. */
  etag: string;
  /** SQL over the row: when it was last written. */
  mtime: string;
}

export interface DocumentBucket extends QueryTarget, Readonly<DocumentDeclaration> {
  readonly kind: 'document';
}

export interface ColumnsBucket extends QueryTarget {
  readonly kind: 'columns';
  readonly key: QueryField;
  /** The fields that make up the value. */
  readonly valueFields: ReadonlyMap<string, QueryField>;
  readonly etag: string;
  readonly mtime: string;
}

export type Bucket = DocumentBucket | ColumnsBucket;

/** A stored object. */
export interface BucketObject<Value = Record<string, unknown>> {
  bucket: string;
  key: string;
  value: Value;
  /** Changes with each write; opaque. */
  etag: string;
  /** By the database's clock. */
  mtime: Date;
}

const keyMaxLength = 512;

/** Filters may also use `_id` (order of creation), `_key`, `_etag` and `_mtime`. */
export function documentBucket(declaration: DocumentDeclaration): DocumentBucket {
  requireName(declaration.name);
  const fields = new Map<string, QueryField>([
    ['_id', { type: 'number', sql: '_id' }],
    ['_key', { type: 'string', sql: '_key' }],
    ['_etag', { type: 'string', sql: '_etag' }],
    ['_mtime', { type: 'timestamp', sql: '_mtime' }],
  ]);
  for (const [name, { type }] of Object.entries(declaration.indexes)) {
    requireField(name);
    fields.set(name, { type, sql: quoteName(name) });
  }
  return Object.freeze({ kind: 'document', ...declaration, fields });
}

export function columnsBucket({ name, key, fields, etag, mtime }: ColumnsDeclaration): ColumnsBucket {
  requireName(name);
  const valueFields = new Map<string, QueryField>();
  for (const [field, { type, sql = quoteName(field) }] of Object.entries(fields)) {
    requireField(field);
    valueFields.set(field, { type, sql });
  }
  const keyField = valueFields.get(key);
  if (keyField === undefined) throw new TypeError(`bucket ${name}: its key '${key}' is none of its fields`);
  const all = new Map([
    ...valueFields,
    ['_key', keyField],
    ['_mtime', { type: 'timestamp' as const, sql: `(${mtime})` }],
  ]);
  return Object.freeze({ kind: 'columns', name, key: keyField, fields: all, valueFields, etag, mtime });
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
export function checkKey(bucket: Bucket, key: string): void {
  if (key.length === 0 || key.length > keyMaxLength || key.includes('\0')) {
    throw new InvalidQueryError(`a key in ${bucket.name} has 1 to ${keyMaxLength} characters, none of them NUL`);
  }
}

function requireName(name: string): void {
  if (!/^[a-z][a-z0-9_]{0,29}$/.test(name)) throw new TypeError(`'${name}' cannot be a bucket's name`);
}

function requireField(name: string): void {
  if (!/^[a-zA-Z][a-zA-Z0-9_]{0,27}$/.test(name)) throw new TypeError(`'${name}' cannot be a field's name`);
}
