/**
 * Pieces of SQL text. Pure. Values are always sent as parameters. Names come from declarations
 * only, and are quoted.
 */
export interface Statement {
  text: string;
  values: unknown[];
}

/** Collects a statement's values and returns a placeholder for each. */
export class Parameters {
  readonly values: unknown[] = [];

  /** The placeholder of `value`, cast to `type`. */
  add(value: unknown, type: string): string {
    this.values.push(value);
    return `$${this.values.length}::${type}`;
  }
}

export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
