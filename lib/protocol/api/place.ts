/**
 * Places in lists that are ordered by time, newest first: each page starts where the one before it
 * ended, at a place among the objects and not at an offset or an object, so new and deleted objects
 * shift nothing. Pure.
 */
import { z } from 'zod';
import { text } from './rules.ts';

export interface Place {
  /** In microseconds since 1970, as text: a JavaScript number cannot hold it exactly. */
  at: string;
  id: string;
}

/** Undefined for a place that no list has returned. */
export function parsePlace(text: string): Place | undefined {
  const [, at, id] = /^(\d{1,18})_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(text) ?? [];
  return at === undefined || id === undefined ? undefined : { at, id };
}

export const formatPlace = ({ at, id }: Place): string => `${at}_${id}`;

/** The parameter `after`: the end of a page, as that page returned it. */
export const place = text()
  .transform((value, context) => {
    const parsed = parsePlace(value);
    if (parsed === undefined) context.addIssue('value is not the `next` of a page');
    return parsed;
  })
  .meta({ type: 'string' });

/** The field `next` of a page. */
export const nextPlace = () =>
  z
    .string()
    .optional()
    .describe(
      'Give it as `after` for the next page; absent when there is none. A page may have few objects, even none, without being the last',
    );
