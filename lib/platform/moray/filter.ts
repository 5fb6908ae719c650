/**
 * Search filters as data, and functions to build them. Pure. `filter-sql.ts` translates them to
 * SQL.
 */
export type Filter =
  | { kind: 'and'; filters: Filter[] }
  | { kind: 'equal'; field: string; value: string }
  | { kind: 'prefix'; field: string; prefix: string };

/** Matches if all filters match; without filters it matches everything. */
export function and(...filters: Filter[]): Filter {
  return { kind: 'and', filters };
}

export function eq(field: string, value: string | number | boolean): Filter {
  return { kind: 'equal', field, value: String(value) };
}

export function startsWith(field: string, prefix: string): Filter {
  return { kind: 'prefix', field, prefix };
}
