/**
 * Pieces of SQL text. Pure. Values are always sent as parameters. Names come from declarations
 * only, and are quoted.
 */
export interface Statement {
  text: string;
  values: unknown[];
}

/**
 * Another write that is carried out by the same statement, so that both commit or neither does:
 * returns its text, and adds its values. It has the snapshot of the statement, so neither write
 * sees the other.
 */
export type StatementPart = (parameters: SqlParameters) => string;

/** Collects a statement's values and returns a placeholder for each. */
export class SqlParameters {
  readonly values: unknown[];

  /** `values`: those that the text already refers to, as `$1` and so on. */
  constructor(values: readonly unknown[] = []) {
    this.values = [...values];
  }

  /** The placeholder of `value`, cast to `type`. */
  add(value: unknown, type: string): string {
    this.values.push(value);
    return `$${this.values.length}::${type}`;
  }
}

/** The statement, which may begin with `with`, and a further write if there is one. */
export function combineStatement(
  text: string,
  parameters: SqlParameters,
  extraWrite: StatementPart | undefined,
): Statement {
  const whole = extraWrite === undefined ? text : `with also as (${extraWrite(parameters)})${afterFirstPart(text)}`;
  return { text: whole, values: parameters.values };
}

/**
 * A statement that changes one row, or none because it was changed since it was read. `also` writes
 * only if the part `changed` has a row, so it must read from it. Returns a row if it has changed
 * something.
 */
export function combineIfChanged(
  text: string,
  parameters: SqlParameters,
  extraWrite: StatementPart | undefined,
): Statement {
  const further = extraWrite === undefined ? '' : `, also as (${extraWrite(parameters)})`;
  return { text: `with changed as (${text} returning 1)${further} select 1 from changed`, values: parameters.values };
}

const afterFirstPart = (text: string) => (/^with\s/.test(text) ? `, ${text.slice('with '.length)}` : ` ${text}`);

/** The name under which such a statement is prepared: a name always has the same text. */
export const statementName = (name: string, extraWrite: StatementPart | undefined): string =>
  extraWrite === undefined ? name : `${name} with record`;

/**
 * SQL for a moment as a number in a text, and for the moment of such a text. JavaScript's own times
 * have only milliseconds.
 */
export const inMicroseconds = (moment: string): string => `(extract(epoch from ${moment}) * 1000000)::bigint::text`;
export const fromMicroseconds = (bigint: string): string =>
  `timestamptz 'epoch' + ${bigint} * interval '1 microsecond'`;

export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
