/**
 * Classifies the failure of a statement. Pure. Called by `pool.ts`.
 *
 * - unavailable: the database is down or takes no writes. Only this one is about its health.
 * - locked: the statement waited too long for a row, or was part of a deadlock.
 * - slow: the statement exceeded its time limit.
 * - resources: the database has too little memory, or another limit, for the statement.
 * - unanswered: the statement or its answer is too large to pass the network in time.
 * - any other error is the statement's own. A retry helps with all but this one.
 */
import { DatabaseBusyError, DatabaseUnavailableError, isTemporary, isUnanswered } from '../errors.ts';
import { sqlStateOf } from './database.ts';

/** Error codes of the operating system's network calls. */
const networkCodes = new Set(
  'ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ETIMEDOUT ENOTFOUND EAI_AGAIN EHOSTUNREACH ENETUNREACH EHOSTDOWN ENOENT'.split(
    ' ',
  ),
);

/** SQLSTATEs after which the connection is gone or belongs to a server that can no longer serve. */
const lostStates = new Set([
  '57P01', // admin_shutdown
  '57P02', // crash_shutdown
  '57P03', // cannot_connect_now
  '57P05', // idle_session_timeout
  '53300', // too_many_connections
  '25P03', // idle_in_transaction_session_timeout
  '25006', // read_only_sql_transaction: this server is a standby now
  '26000', // invalid_sql_statement_name: a pooler gave us another server session
]);

const DISK_FULL = '53100';

/** SQLSTATEs of a statement that may succeed later, on a connection that is still usable. */
const busyStates: ReadonlyMap<string, DatabaseBusyError['condition']> = new Map([
  ['57014', 'slow'], // query_canceled, by statement_timeout
  ['55P03', 'locked'], // lock_not_available, by lock_timeout
  ['40P01', 'locked'], // deadlock_detected
  ['53000', 'resources'], // insufficient_resources
  ['53200', 'resources'], // out_of_memory
  ['53400', 'resources'], // configuration_limit_exceeded
]);

/** Messages that the driver throws without a code. */
const driverMessages = [
  /^Connection terminated/,
  /^timeout expired/,
  /^Client has encountered a connection error/,
  /^Client was closed/,
  /^Cannot use a pool after calling end/,
];

/** The pool's connections were all in use for too long; they may all be healthy. */
const poolExhausted = /^timeout exceeded when trying to connect/;

/** Why the database takes no writes, for messages; undefined if the error does not show that. */
export function writeFailureReason(error: unknown): string | undefined {
  const failed = error instanceof DatabaseUnavailableError ? error.cause : error;
  const { routine = '' } = (failed ?? {}) as { routine?: string };
  switch (sqlStateOf(failed)) {
    case DISK_FULL:
      return 'the disk of the database is full';
    case '25006':
      return 'the database is read-only';
    case '54000': // program_limit_exceeded, which has other causes too
      return routine === 'GetNewTransactionId'
        ? 'the database is out of transaction ids; it needs a vacuum'
        : undefined;
    case '58030': // io_error of the storage manager; an unreadable block does not stop writes
      return /^md(?!read)/.test(routine) ? 'the database cannot write to its disk' : undefined;
    default:
      return undefined;
  }
}

/** True when the connection that threw this must not be used again. */
export function isConnectionLost(error: unknown): boolean {
  if (error instanceof DatabaseBusyError) return isUnanswered(error);
  if (error instanceof DatabaseUnavailableError && sqlStateOf(error.cause) === DISK_FULL) return false;
  const state = sqlStateOf(error);
  if (state === '0A000') return isPlanOutdated(error);
  if (state !== undefined && !networkCodes.has(state)) {
    return state.startsWith('08') || lostStates.has(state);
  }
  if (!(error instanceof Error)) return false;
  if (error instanceof DatabaseUnavailableError) return true;
  return (
    networkCodes.has((error as { code?: string }).code ?? '') || driverMessages.some((one) => one.test(error.message))
  );
}

/** The bytes that a connection has moved. */
export interface Traffic {
  read: number;
  written: number;
}

/** A link that does not move this much within a statement's time is as good as down. */
const SMALL_BYTES = 16 * 1024;

/**
 * The error of a statement without an answer in time, by what its connection has moved meanwhile. A
 * small statement without any answer shows that the database is down. A large one may still be on
 * its way, and an answer that has begun to arrive shows that the database is up.
 */
export function unansweredError(moved: Traffic, timeoutMs: number): DatabaseUnavailableError | DatabaseBusyError {
  const cause = new Error(`no answer from the database in ${timeoutMs} ms`);
  if (moved.read > 0 || moved.written >= SMALL_BYTES) return new DatabaseBusyError('unanswered', cause);
  return new DatabaseUnavailableError(cause);
}

/**
 * The error to pass on: a DatabaseUnavailableError or DatabaseBusyError around a temporary error;
 * any other error unchanged.
 */
export function asDatabaseError(error: unknown): unknown {
  if (isTemporary(error)) return error;
  const condition = busyStates.get(sqlStateOf(error) ?? '');
  if (condition !== undefined) return new DatabaseBusyError(condition, error);
  const reason = writeFailureReason(error);
  if (reason !== undefined)
    return new DatabaseUnavailableError(error, `Nothing can be written: ${reason}; try again later`);
  const isExhausted = error instanceof Error && poolExhausted.test(error.message);
  return isExhausted || isConnectionLost(error) ? new DatabaseUnavailableError(error) : error;
}

/**
 * A prepared statement's result has changed its shape since. A new connection prepares it again.
 */
const isPlanOutdated = (error: unknown): boolean => (error as { routine?: string }).routine === 'RevalidateCachedQuery';
