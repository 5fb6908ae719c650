/**
 * Places in the list of tasks: each page starts where the one before it ended, at a place among the
 * tasks and not at an offset, so new tasks shift nothing. And the prefixes of ids that the list
 * accepts. Pure.
 */

/** A place in the order by time, newest first. */
export interface TaskListCursor {
  /** In microseconds since 1970, as text: a JavaScript number cannot hold it exactly. */
  at: string;
  id: string;
}

const MIN_PREFIX_CHARS = 4;

/** Undefined for a place that no list has returned. */
export function parsePlace(text: string): TaskListCursor | undefined {
  const [, at, id] = /^(\d{1,18})_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(text) ?? [];
  return at === undefined || id === undefined ? undefined : { at, id };
}

export const formatPlace = ({ at, id }: TaskListCursor): string => `${at}_${id}`;

/**
 * The first and the last id with this prefix; undefined if no id begins with it, or too many do.
 */
export function idRangeOf(prefix: string): { first: string; last: string } | undefined {
  const shape = '00000000-0000-0000-0000-000000000000';
  const isBeginning = [...prefix].every((one, at) => (shape[at] === '-' ? one === '-' : /[0-9a-f]/.test(one)));
  if (prefix.length < MIN_PREFIX_CHARS || prefix.length > shape.length || !isBeginning) return undefined;
  const rest = shape.slice(prefix.length);
  return { first: prefix + rest, last: prefix + rest.replaceAll('0', 'f') };
}
