/**
 * Tells trouble with the database (lost, refusing, too slow: worth trying again) from a statement's own error. Pure.
 * Called by `pool.ts`.
 */
import { DatabaseUnavailableError } from '../errors.ts';
import { sqlStateOf } from './database.ts';

/** Error codes of the operating system's network calls. */
const networkCodes = new Set(
  'ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ETIMEDOUT ENOTFOUND EAI_AGAIN EHOSTUNREACH ENETUNREACH EHOSTDOWN ENOENT'.split(
    ' ',
  ),
);

/** SQLSTATEs after which the connection is gone or belongs to a server that cannot serve (any more). */
const lostStates = new Set([
  '57P01', // admin_shutdown
  '57P02', // crash_shutdown
  '57P03', // cannot_connect_now
  '57P05', // idle_session_timeout
  '25P03', // idle_in_transaction_session_timeout
  '25006', // read_only_sql_transaction: this server is a standby now
  '26000', // invalid_sql_statement_name: whoever stands between gave us another connection without what was prepared
]);

/** SQLSTATEs of a statement that took too long on a connection that is still good. */
const slowStates = new Set([
  '57014', // query_canceled, by statement_timeout
  '55P03', // lock_not_available, by lock_timeout
]);

/** What the driver throws without any code. */
const driverMessages = [
  /^Connection terminated/,
  /^timeout expired/,
  /^Client has encountered a connection error/,
  /^Client was closed/,
  /^Cannot use a pool after calling end/,
];

/** The pool's connections were all in use for too long; none of them need be at fault. */
const poolExhausted = /^timeout exceeded when trying to connect/;

/** True when the connection that threw this must not be used again. */
export function isConnectionLost(error: unknown): boolean {
  const state = sqlStateOf(error);
  if (state === '0A000') return isPlanOutdated(error);
  if (state !== undefined && !networkCodes.has(state)) {
    return state.startsWith('08') || state.startsWith('53') || lostStates.has(state);
  }
  if (!(error instanceof Error)) return false;
  if (error instanceof DatabaseUnavailableError) return !slowStates.has(sqlStateOf(error.cause) ?? '');
  return (
    networkCodes.has((error as { code?: string }).code ?? '') || driverMessages.some((one) => one.test(error.message))
  );
}

/** The error to hand on: DatabaseUnavailableError around connection-class errors and timeouts, all else as it is. */
export function asDatabaseError(error: unknown): unknown {
  if (error instanceof DatabaseUnavailableError) return error;
  const isSlow =
    slowStates.has(sqlStateOf(error) ?? '') || (error instanceof Error && poolExhausted.test(error.message));
  return isSlow || isConnectionLost(error) ? new DatabaseUnavailableError(error) : error;
}

/** A statement was prepared on this connection before its result changed its shape: a new one prepares it anew. */
const isPlanOutdated = (error: unknown): boolean => (error as { routine?: string }).routine === 'RevalidateCachedQuery';
