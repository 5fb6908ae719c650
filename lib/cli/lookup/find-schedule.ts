/** Schedules of push jobs, as callers name and list them. */
import type { CnapiClient } from '../../client/client.ts';
import { pages } from '../../client/pages.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { type PushSchedule, pushScheduleContracts } from '../../protocol/api/push/schedules.ts';
import type { Context } from '../invocation/context.ts';
import { checkPrefix, uniqueMatch } from './find.ts';

export const MAX_SCHEDULES = 1_000;

/** The newest schedules, from as many pages as needed, because a page of large jobs is short. */
export function firstSchedules(client: CnapiClient, count?: number): Promise<PushSchedule[]> {
  const found = pages(async (page) => {
    const { schedules, next } = await client.ask(pushScheduleContracts.ListPushSchedules, page);
    return { items: schedules, next };
  }, count);
  return Array.fromAsync(found);
}

/** Finds a schedule by its id, or by the beginning of its id. @throws UsageError */
export async function findSchedule({ client }: Pick<Context, 'client'>, text: string): Promise<string> {
  if (isUuid(text)) return text;
  checkPrefix('a schedule', text);
  const schedules = await firstSchedules(client);
  const ids = schedules.map(({ id }) => id);
  return uniqueMatch('schedule', text, ids);
}
