/**
 * Turns a filter into a SQL condition over a bucket's indexed fields. Pure.
 *
 * A comparison with a field that has no value is false, and its negation is true:
 * `(!(status=active))` also finds objects without a status. (RFC 4511 section 4.5.1.7: an absent
 * attribute does not match; "undefined" is for attributes that the server does not know, which are
 * refused here.) Negation is pushed down to the comparisons, so positive comparisons stay unchanged
 * and use their index.
 */

import type { Parameters } from '../sql-text.ts';
import { type FieldType, parseFieldText, sqlTypes } from './field-type.ts';
import type { Filter, SubstringsFilter } from './filter.ts';
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

interface Context {
  target: QueryTarget;
  parameters: Parameters;
}

/**
 * Returns the SQL condition for `filter`; adds its values to `parameters`.
 * @throws NotIndexedError naming all unindexed fields; InvalidQueryError naming the field whose
 * value is not of its type
 */
export function filterCondition(filter: Filter, target: QueryTarget, parameters: Parameters): string {
  const unindexed = new Set(fieldsOf(filter).filter((field) => !target.fields.has(field)));
  if (unindexed.size > 0) throw new NotIndexedError(target.name, [...unindexed]);
  return condition(filter, true, { target, parameters });
}

/** @param isWanted false for the negation */
function condition(filter: Filter, isWanted: boolean, context: Context): string {
  switch (filter.kind) {
    case 'not':
      return condition(filter.filter, !isWanted, context);
    case 'and':
    case 'or':
      return list(filter, isWanted, context);
    default: {
      const comparison = compare(filter, context);
      return isWanted ? comparison : `(${comparison}) is not true`;
    }
  }
}

function list(filter: Extract<Filter, { kind: 'and' | 'or' }>, isWanted: boolean, context: Context): string {
  const isAnd = (filter.kind === 'and') === isWanted;
  const { lookups, others } =
    filter.kind === 'or' ? gatherLookups(filter.filters) : { lookups: new Map(), others: filter.filters };
  const conditions = others.map((one) => condition(one, isWanted, context));
  for (const [field, values] of lookups) {
    const { sql, type } = fieldOf(field, context);
    const parsed = values.map((value: string) => parseValue(field, type, value));
    const comparison = `${sql} = any(${context.parameters.add(parsed, `${sqlTypes[type]}[]`)})`;
    conditions.push(isWanted ? comparison : `(${comparison}) is not true`);
  }
  return conditions.length === 0 ? String(isAnd) : `(${conditions.join(isAnd ? ' and ' : ' or ')})`;
}

/** Combines several equalities of one field in an `or` into one lookup in a list. */
function gatherLookups(filters: readonly Filter[]): { lookups: Map<string, string[]>; others: Filter[] } {
  const byField = Map.groupBy(filters, (one) => (one.kind === 'equal' ? one.field : undefined));
  const lookups = new Map<string, string[]>();
  for (const [field, equalities] of byField) {
    if (field === undefined || equalities.length < 2) continue;
    lookups.set(
      field,
      equalities.flatMap((one) => (one.kind === 'equal' ? [one.value] : [])),
    );
  }
  const others = filters.filter((one) => !(one.kind === 'equal' && lookups.has(one.field)));
  return { lookups, others };
}

type Comparison = Exclude<Filter, { kind: 'and' | 'or' | 'not' }>;

function compare(filter: Comparison, context: Context): string {
  const { sql, type } = fieldOf(filter.field, context);
  const value = (text: string) => context.parameters.add(parseValue(filter.field, type, text), sqlTypes[type]);
  switch (filter.kind) {
    case 'present':
      return `${sql} is not null`;
    case 'equal':
      return `${sql} = ${value(filter.value)}`;
    case 'atLeast':
      return `${sql} >= ${value(filter.value)}`;
    case 'atMost':
      return `${sql} <= ${value(filter.value)}`;
    case 'substrings':
      return like(filter, { sql, type }, context.parameters);
    default:
      return filter satisfies never;
  }
}

function like(filter: SubstringsFilter, { sql, type }: QueryField, parameters: Parameters): string {
  const { field } = filter;
  if (type !== 'string' && type !== 'uuid')
    throw new InvalidQueryError(`${field} is a ${type} and has no substrings`, { field });
  const parts = [filter.initial, ...filter.any, filter.final].map((part) => parseValue(field, 'string', part));
  const pattern = parameters.add(parts.map((part) => escapeLike(String(part))).join('%'), 'text');
  return type === 'uuid' ? `${sql}::text like lower(${pattern})` : `${sql} like ${pattern}`;
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

function fieldOf(name: string, { target }: Context): QueryField {
  const field = target.fields.get(name);
  if (field === undefined) throw new NotIndexedError(target.name, [name]);
  return field;
}

function fieldsOf(filter: Filter): string[] {
  switch (filter.kind) {
    case 'and':
    case 'or':
      return filter.filters.flatMap(fieldsOf);
    case 'not':
      return fieldsOf(filter.filter);
    default:
      return [filter.field];
  }
}
