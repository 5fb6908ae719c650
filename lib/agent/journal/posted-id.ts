/**
 * Ids of tasks that were posted to the agent itself: UUIDs of version 8. Every journal record
 * therefore shows where its task came from. No instance creates such ids. Pure.
 */
import type { Random } from '../../platform/random.ts';

const VERSION_AT = 14;

export function newPostedId(random: Random): string {
  const uuid = random.uuid();
  return `${uuid.slice(0, VERSION_AT)}8${uuid.slice(VERSION_AT + 1)}`;
}

export const isPostedId = (id: string): boolean => id[VERSION_AT] === '8';
