/**
 * A ticket: a place in a waitlist, which is the queue of one (server, scope, id). The owner of the
 * active ticket holds the lock. Pure: types, and the rules for a request (docs/compatibility.md).
 *
 *      created ──▶ queued ──it is the first──▶ active ──released──▶ finished
 *         │          ├──────────released─────────┼─────────────────────▲
 *         │          └──────────it is due────────┴──▶ expired
 *         └── the queue is empty ──▶ active                      any ──deleted──▶ gone
 *
 * Finished and expired are final. A trigger of the table refuses all other changes.
 */

import type { StatementPart } from '../../platform/postgres/sql-text.ts';
import type { Issue } from '../../protocol/api/contract/contract.ts';
import type { Ticket } from '../../protocol/api/tickets.ts';
import { isDate } from '../../protocol/date.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { MAX_TICKET_ID_BYTES, MAX_TICKET_SCOPE_BYTES } from '../../protocol/limits.ts';

export type TicketStatus = Ticket['status'];

/**
 * When a ticket expires: at a time, as the caller wrote it, or after a number of seconds on the
 * database's clock.
 */
export type ExpiryRequest = { expiresAt: string } | { expiresInSeconds: number };

export interface TicketRequest {
  /** The new ticket's uuid, if it is to be a certain one. */
  uuid?: string | undefined;
  serverUuid: string;
  scope: string;
  id: string;
  action?: string | undefined;
  extra?: JsonObject | undefined;
  reqId?: string | undefined;
  /** The caller's name. */
  actor?: string | undefined;
  expiry: ExpiryRequest;
  /**
   * A request that repeats this key, because the first answer was lost, receives the first
   * request's ticket.
   */
  idempotencyKey?: string | undefined;
  /** A record of who asks for it, written in the same statement. */
  record?: StatementPart | undefined;
}

/** An expiry that can be stored: the caller's time and its text, or a duration. */
export type Expiry = { atMs: number; text: string } | { inMs: number };

export function isEnded(status: TicketStatus): boolean {
  return status === 'finished' || status === 'expired';
}

/** Maximum lengths of a ticket's texts, in bytes of UTF-8; `extra` is measured as JSON. */
export const TICKET_LIMITS = {
  server_uuid: 64,
  scope: MAX_TICKET_SCOPE_BYTES,
  id: MAX_TICKET_ID_BYTES,
  action: 256,
  reqid: 256,
  extra: 16_384,
} as const;
/** Maximum of `expires_in`: one hundred years. */
export const MAX_EXPIRES_IN_SECONDS = 3_155_760_000;

/**
 * Returns what is wrong with a request for a ticket, without checking its expiry; undefined when it
 * is valid.
 */
export function findTicketIssue(request: TicketRequest): Issue | undefined {
  const { serverUuid, scope, id, action, reqId, extra } = request;
  const required = { server_uuid: serverUuid, scope, id };
  for (const [field, text] of Object.entries(required)) {
    if (text === '') return { field, message: 'must not be empty' };
  }
  const texts = { ...required, action, reqid: reqId, extra: extra && JSON.stringify(extra) };
  for (const [field, text] of Object.entries(texts)) {
    const message = text === undefined ? undefined : reasonNotText(text, TICKET_LIMITS[field as keyof typeof texts]);
    if (message !== undefined) return { field, message };
  }
  return undefined;
}

function reasonNotText(text: string, maxBytes: number): string | undefined {
  if (text.includes('\0') || !text.isWellFormed()) return 'contains a NUL character or half of a surrogate pair';
  return Buffer.byteLength(text) > maxBytes ? `is longer than ${maxBytes} bytes` : undefined;
}

/**
 * ISO 8601, from a year alone ("3000") to a time with an offset. A time without an offset is UTC.
 * The year is at most 9999, which every party can store.
 */
const ISO_8601 = /^(\d{4}(?:-\d\d(?:-\d\d)?)?)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:\d\d)?)?$/i;

export function parseExpiry(request: ExpiryRequest): Expiry | Issue {
  if ('expiresInSeconds' in request) return parseDuration(request.expiresInSeconds);
  const text = request.expiresAt;
  const atMs = parseTime(text);
  if (atMs === undefined) {
    const message =
      'is not a time in ISO 8601 between the years 0001 and 9999, such as 2030-12-31T23:59:59.000Z or 3000';
    return { field: 'expires_at', message };
  }
  return { atMs, text };
}

function parseDuration(seconds: number): Expiry | Issue {
  const inMs = Math.round(seconds * 1000);
  if (inMs >= 1 && seconds <= MAX_EXPIRES_IN_SECONDS) return { inMs };
  return {
    field: 'expires_in',
    message: `is not a number of seconds greater than 0 and up to ${MAX_EXPIRES_IN_SECONDS}`,
  };
}

function parseTime(text: string): number | undefined {
  const [, date = '', time, offset = 'Z'] = ISO_8601.exec(text) ?? [];
  if (!isDate(date)) return undefined;
  const atMs = Date.parse(time === undefined ? date : `${date}T${time}${offset.toUpperCase()}`);
  return atMs >= EARLIEST_MS && atMs <= LATEST_MS ? atMs : undefined;
}

const EARLIEST_MS = Date.parse('0001-01-01T00:00:00Z');
const LATEST_MS = Date.parse('9999-12-31T23:59:59.999Z');

/** A ticket's status as last read; undefined when the ticket does not exist. */
export type TicketState = TicketStatus | undefined;

/**
 * How a wait ends. 'deleted': the ticket existed when the wait began. 'timeout': it is still
 * queued.
 */
export type WaitOutcome = 'active' | 'finished' | 'expired' | 'deleted' | 'timeout';

/**
 * The outcome of a wait for a ticket with this state; undefined while the wait must continue.
 */
export function decideWaitOutcome(state: TicketState): Exclude<WaitOutcome, 'timeout'> | undefined {
  if (state === undefined) return 'deleted';
  return state === 'queued' ? undefined : state;
}

/**
 * How far a ticket is in its life. A read that shows an earlier stage than a previous read is
 * stale.
 */
export function lifeStage(state: TicketState): number {
  if (state === undefined) return 3;
  return state === 'queued' ? 0 : state === 'active' ? 1 : 2;
}
