/**
 * Cursors of lists that are ordered by time, newest first. A cursor is a time and an id, not an
 * offset, so objects that are created or deleted between two pages shift nothing. Pure.
 */
import { z } from 'zod';
import { text } from './rules.ts';

export interface Cursor {
  /** Microseconds since 1970 as text: a JavaScript number cannot hold them exactly. */
  at: string;
  id: string;
}

/** Undefined for a text that no list has returned. */
export function parseCursor(text: string): Cursor | undefined {
  const [, at, id] = /^(\d{1,18})_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(text) ?? [];
  return at === undefined || id === undefined ? undefined : { at, id };
}

export const formatCursor = ({ at, id }: Cursor): string => `${at}_${id}`;

/** The parameter `after`: the end of a page, as that page returned it. */
export const cursor = text()
  .transform((value, context) => {
    const parsed = parseCursor(value);
    if (parsed === undefined) context.addIssue('value is not the `next` of a page');
    return parsed;
  })
  .meta({ type: 'string' });

/** The field `next` of a page. */
export const nextCursor = () =>
  z
    .string()
    .optional()
    .describe(
      'Give it as `after` for the next page; absent when there is none. A page may have few objects, even none, without being the last',
    );
