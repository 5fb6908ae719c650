/**
 * Records of the audit log as parts of the statements that make the changes, so that both commit or
 * neither does. lib/control/audit makes them; the stores of all nouns carry them out.
 */
import type { SqlParameters } from '../platform/postgres/sql-text.ts';

/**
 * The record of a change, as a part of its statement. `details`: SQL of a jsonb value, which the
 * record keeps about the object. `servers`: SQL of a uuid[], the servers that the change is about,
 * if it is not about one alone. `changed`: the name of a part that has one row if something has
 * changed; otherwise nothing is recorded.
 */
export type AuditRecordPart = (
  parameters: SqlParameters,
  details?: string,
  servers?: string,
  changed?: string,
) => string;

/** Carries out a change with its record, if it is recorded; `object`: what it changes. */
export type WithAuditRecord = <Result>(
  work: (record: AuditRecordPart | undefined) => Promise<Result>,
  object?: string,
) => Promise<Result>;

/**
 * The records of what a statement deletes. `rows`: the name of its part with `id` and `details`.
 */
export type ExpiryPart = (parameters: SqlParameters, rows: string) => string;
