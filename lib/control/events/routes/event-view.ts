/**
 * An event as callers see it. Its object is in short form, so every reader sees all of it. Pure.
 */
import type { LoggedEvent } from '../event.ts';

export function toEventData({ body, storedAt }: LoggedEvent): Record<string, unknown> {
  return { ...body, time: storedAt.toISOString() };
}
