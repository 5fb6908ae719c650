/**
 * Search filters as data, and functions to build them. Pure. `filter-sql.ts` translates them to
 * SQL.
 */
export type Filter =
  | { kind: 'and'; filters: Filter[] }
  | { kind: 'or'; filters: Filter[] }
  | { kind: 'not'; filter: Filter }
  | { kind: 'present'; field: string }
  | { kind: 'equal'; field: string; value: string }
  | { kind: 'atLeast'; field: string; value: string }
  | { kind: 'atMost'; field: string; value: string }
  | SubstringsFilter;

/**
 * The parts are in order and do not overlap. An absent initial or final part is ''. At least one
 * part is not empty.
 */
export interface SubstringsFilter {
  kind: 'substrings';
  field: string;
  initial: string;
  any: string[];
  final: string;
}

type Comparable = string | number | boolean | Date;

/** Matches if all filters match; without filters it matches everything (RFC 4526). */
export function and(...filters: Filter[]): Filter {
  return { kind: 'and', filters };
}

/** Matches if any filter matches; without filters it matches nothing (RFC 4526). */
export function or(...filters: Filter[]): Filter {
  return { kind: 'or', filters };
}

export function not(filter: Filter): Filter {
  return { kind: 'not', filter };
}

/** The field has a value. */
export function present(field: string): Filter {
  return { kind: 'present', field };
}

export function eq(field: string, value: Comparable): Filter {
  return { kind: 'equal', field, value: textOf(value) };
}

/** The field has one of these values; one indexed lookup for any number of values. */
export function oneOf(field: string, values: readonly Comparable[]): Filter {
  return or(...values.map((value) => eq(field, value)));
}

export function ge(field: string, value: Comparable): Filter {
  return { kind: 'atLeast', field, value: textOf(value) };
}

export function le(field: string, value: Comparable): Filter {
  return { kind: 'atMost', field, value: textOf(value) };
}

export function startsWith(field: string, initial: string): Filter {
  return { kind: 'substrings', field, initial, any: [], final: '' };
}

/** Matches all objects. */
export const everything: Filter = and();

function textOf(value: Comparable): string {
  return value instanceof Date ? value.toISOString() : String(value);
}
