/**
 * Limits how many connections of a pool one kind of work may hold. If many callers wait for one
 * locked row, they would otherwise hold every connection, and nothing else would proceed (law 9).
 * Used by the waitlist.
 */
import type { Clock } from '../clock.ts';
import { DatabaseBusyError } from '../errors.ts';
import { Semaphore } from '../semaphore.ts';
import type { Queryable } from './database.ts';

/** How long a statement may wait for a row before it makes way for statements on other rows. */
const QUICK_LOCK_MS = 20;

/**
 * The same database with at most `connections` statements at once, two or more. A statement that
 * waits for a locked row makes way for the others: it goes to the end of a queue of its own, which
 * has one of the connections. What is not done within `withinMs` fails with a DatabaseBusyError;
 * nothing was changed then.
 */
export function limitConcurrency(
  database: Queryable,
  { connections, withinMs, clock }: { connections: number; withinMs: number; clock: Clock },
): Queryable {
  const quick = new Semaphore(connections - 1);
  const patient = new Semaphore(1);
  const late = () => new DatabaseBusyError('locked');
  return {
    query: async (text, values, options) => {
      const startedAt = clock.now();
      const limited = { ...options, lockTimeoutMs: QUICK_LOCK_MS };
      try {
        return await quick.runWithin({ clock, withinMs, late }, () => database.query(text, values, limited));
      } catch (error) {
        const leftMs = withinMs - (clock.now() - startedAt);
        if (!(error instanceof DatabaseBusyError) || error.condition !== 'locked' || leftMs <= 0) throw error;
        const left = { clock, withinMs: leftMs, late };
        return patient.runWithin(left, () => database.query(text, values, { ...options, lockTimeoutMs: leftMs }));
      }
    },
  };
}
