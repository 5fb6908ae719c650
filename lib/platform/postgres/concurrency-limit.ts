/**
 * Limits how many connections of a pool one kind of work may hold. If many callers wait for one
 * locked row, they would otherwise hold every connection, and nothing else would proceed (law 9).
 * Used by the waitlist.
 */
import type { Clock } from '../clock.ts';
import { DatabaseBusyError } from '../errors.ts';
import { Semaphore } from '../semaphore.ts';
import type { Queryable } from './database.ts';

/**
 * The same database with at most `connections` statements at once. A statement that finds none free
 * within `withinMs` fails with a DatabaseBusyError.
 */
export function limitConcurrency(
  database: Queryable,
  { connections, withinMs, clock }: { connections: number; withinMs: number; clock: Clock },
): Queryable {
  const semaphore = new Semaphore(connections);
  const limit = { clock, withinMs, late: () => new DatabaseBusyError('locked') };
  return {
    query: (text, values, options) => semaphore.runWithin(limit, () => database.query(text, values, options)),
  };
}
