/**
 * Turns a filter into a SQL condition over a bucket's indexed fields. Pure. A comparison with a
 * field that has no value is false.
 */
import type { SqlParameters } from '../postgres/sql-text.ts';
import { type FieldType, parseFieldText, sqlTypes } from './field-type.ts';
import type { Filter } from './filter.ts';
import { InvalidQueryError, NotIndexedError } from './moray-errors.ts';

/** A field that filters may use. */
export interface QueryField {
  type: FieldType;
  /** A quoted column or an expression. */
  sql: string;
}

export interface QueryTarget {
  /** The bucket's name, for errors. */
  readonly name: string;
  readonly fields: ReadonlyMap<string, QueryField>;
}

/**
 * Returns the SQL condition for `filter`; adds its values to `parameters`.
 * @throws NotIndexedError naming all unindexed fields; InvalidQueryError naming the field whose
 * value is not of its type
 */
export function filterCondition(filter: Filter, target: QueryTarget, parameters: SqlParameters): string {
  const unindexed = new Set(fieldsOf(filter).filter((field) => !target.fields.has(field)));
  if (unindexed.size > 0) throw new NotIndexedError(target.name, [...unindexed]);
  return condition(filter, target, parameters);
}

function condition(filter: Filter, target: QueryTarget, parameters: SqlParameters): string {
  if (filter.kind === 'and') {
    const conditions = filter.filters.map((one) => condition(one, target, parameters));
    return conditions.length === 0 ? 'true' : `(${conditions.join(' and ')})`;
  }
  const { field } = filter;
  const found = target.fields.get(field);
  if (found === undefined) throw new NotIndexedError(target.name, [field]);
  const { sql, type } = found;
  if (filter.kind === 'equal')
    return `${sql} = ${parameters.add(parseValue(field, type, filter.value), sqlTypes[type])}`;
  if (type !== 'string') throw new InvalidQueryError(`${field} is a ${type} and has no prefix`, { field });
  const prefix = String(parseValue(field, type, filter.prefix));
  return `${sql} like ${parameters.add(`${escapeLike(prefix)}%`, 'text')}`;
}

function escapeLike(text: string): string {
  return text.replace(/[\\%_]/g, '\\$&');
}

function parseValue(field: string, type: FieldType, text: string): unknown {
  const value = parseFieldText(type, text);
  if (value === undefined)
    throw new InvalidQueryError(`${field} is a ${type}, which '${text.slice(0, 100)}' is not`, { field });
  return value;
}

function fieldsOf(filter: Filter): string[] {
  return filter.kind === 'and' ? filter.filters.flatMap(fieldsOf) : [filter.field];
}
