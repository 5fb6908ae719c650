/**
 * What an event is: one change of a server's status, a task, a ticket or an instance, in its short form, numbered in the
 * order in which all readers are told. Pure.
 */
export const EVENT_KINDS = ['status', 'task', 'ticket', 'instance'] as const;
export type EventKind = (typeof EVENT_KINDS)[number];

export interface LoggedEvent {
  id: number;
  /** `gap`: what happened before it may be missing. */
  kind: EventKind | 'gap';
  /** Null for what is of no one server. */
  serverUuid: string | null;
  storedAt: Date;
  /** The object's short form. */
  body: Record<string, unknown>;
}

/** Absent: of all kinds, of all servers. */
export interface EventFilter {
  kinds?: readonly EventKind[] | undefined;
  serverUuid?: string | undefined;
}

/** A gap concerns everybody. */
export function isWanted({ kind, serverUuid }: LoggedEvent, filter: EventFilter): boolean {
  if (kind === 'gap') return true;
  if (filter.kinds !== undefined && !filter.kinds.includes(kind)) return false;
  return filter.serverUuid === undefined || filter.serverUuid === serverUuid;
}

/**
 * Where a reader stands: after this event. Its time is part of it, so that a number which a database gave anew, after it
 * had been set back, is not taken for the one that the reader has seen.
 */
export interface Position {
  id: number;
  /** Milliseconds; 0 where nothing is known of the event. */
  storedAtMs: number;
}

export const positionOf = ({ id, storedAt }: LoggedEvent): Position => ({ id, storedAtMs: storedAt.getTime() });

export function formatPosition({ id, storedAtMs }: Position): string {
  return id === 0 ? '0' : `${id}-${storedAtMs.toString(36)}`;
}

const POSITION = /^(\d{1,15})(?:-([0-9a-z]{1,10}))?$/;

/** `0` is the beginning of the log. Undefined: no reader was ever given this text. */
export function parsePosition(text: string): Position | undefined {
  const [, id, time] = POSITION.exec(text) ?? [];
  if (id === undefined || (time === undefined) !== (Number(id) === 0)) return undefined;
  return { id: Number(id), storedAtMs: time === undefined ? 0 : Number.parseInt(time, 36) };
}

/** Whether this event has the position's number and is another one: the log was set back, and the number given anew. */
export function isAnother(event: LoggedEvent | undefined, { id, storedAtMs }: Position): boolean {
  return event !== undefined && event.id === id && storedAtMs !== 0 && event.storedAt.getTime() !== storedAtMs;
}

/** What the log holds, and what it knows of one event. */
export interface LogState {
  /** The last event's id; 0 before the first. */
  last: number;
  /** The oldest event's that is kept; the next one's when none is. */
  oldest: number;
  /** When the event that was asked about was stored; undefined when it is not kept. */
  storedAt: Date | undefined;
}

/** `gap`: events after the position are not kept any more. `foreign`: this log did not give it. */
export function standingOf({ id, storedAtMs }: Position, log: LogState): 'held' | 'gap' | 'foreign' {
  if (id > log.last) return 'foreign';
  if (storedAtMs !== 0 && log.storedAt !== undefined && log.storedAt.getTime() !== storedAtMs) return 'foreign';
  return id + 1 < log.oldest ? 'gap' : 'held';
}
