/**
 * An event: one change of a server's status, a task, a ticket, an instance, a push job, a schedule
 * or a document, in short form. Events are numbered in the order in which every reader receives
 * them. Pure.
 */
export interface LoggedEvent {
  id: number;
  /**
   * A kind of `EVENT_KINDS`, or the noun of a document; `gap`: changes before this event may be
   * missing.
   */
  kind: string;
  /** Null for an event that does not concern one server. */
  serverUuid: string | null;
  storedAt: Date;
  /** The object's short form. */
  body: Record<string, unknown>;
}

/** An absent field means all kinds, or all servers. */
export interface EventFilter {
  kinds?: readonly string[] | undefined;
  serverUuid?: string | undefined;
}

/** A gap concerns every reader. */
export function isWanted({ kind, serverUuid }: LoggedEvent, filter: EventFilter): boolean {
  if (kind === 'gap') return true;
  if (filter.kinds !== undefined && !filter.kinds.includes(kind)) return false;
  return filter.serverUuid === undefined || filter.serverUuid === serverUuid;
}

/**
 * A reader's position: after this event. It includes the event's time. So the reader's event is not
 * confused with another that received the same number after the database was set back.
 */
export interface Position {
  id: number;
  /** Milliseconds; 0 if the event's time is not known. */
  storedAtMs: number;
}

export const positionOf = ({ id, storedAt }: LoggedEvent): Position => ({ id, storedAtMs: storedAt.getTime() });

export function formatPosition({ id, storedAtMs }: Position): string {
  return id === 0 ? '0' : `${id}-${storedAtMs.toString(36)}`;
}

const POSITION = /^(\d{1,15})(?:-([0-9a-z]{1,10}))?$/;

/** `0` is the beginning of the log. Undefined: no reader ever received this text. */
export function parsePosition(text: string): Position | undefined {
  const [, id, time] = POSITION.exec(text) ?? [];
  if (id === undefined || (time === undefined) !== (Number(id) === 0)) return undefined;
  return { id: Number(id), storedAtMs: time === undefined ? 0 : Number.parseInt(time, 36) };
}

/**
 * Whether this event has the position's number but is another one: the log was set back, and the
 * number was given again.
 */
export function wasRenumbered(event: LoggedEvent | undefined, { id, storedAtMs }: Position): boolean {
  return event !== undefined && event.id === id && storedAtMs !== 0 && event.storedAt.getTime() !== storedAtMs;
}

/** The range of the log, and the time of one event. */
export interface LogState {
  /** The last event's id; 0 before the first. */
  last: number;
  /** The id of the oldest stored event; the next id if none is stored. */
  oldest: number;
  /** When the requested event was stored; undefined when the log does not have it. */
  storedAt: Date | undefined;
}

/**
 * `gap`: events after the position have been deleted. `foreign`: this log did not give the
 * position.
 */
export function positionState({ id, storedAtMs }: Position, log: LogState): 'held' | 'gap' | 'foreign' {
  if (id > log.last) return 'foreign';
  if (storedAtMs !== 0 && log.storedAt !== undefined && log.storedAt.getTime() !== storedAtMs) return 'foreign';
  return id + 1 < log.oldest ? 'gap' : 'held';
}
