/** Schedules of push jobs, as callers name and list them. */
import type { CnapiClient } from '../../client/client.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { type PushSchedule, pushScheduleContracts } from '../../protocol/api/push/schedules.ts';
import type { Context } from '../invocation/context.ts';
import { checkPrefix, uniqueMatch } from './find.ts';

export const MAX_SCHEDULES = 1_000;

/** The newest schedules, from as many pages as needed, because a page of large jobs is short. */
export async function firstSchedules(client: CnapiClient, count: number): Promise<PushSchedule[]> {
  const schedules: PushSchedule[] = [];
  for (let after: string | undefined; ; ) {
    const limit = Math.min(MAX_SCHEDULES, count - schedules.length);
    const page = await client.ask(pushScheduleContracts.ListPushSchedules, { limit, after });
    schedules.push(...page.schedules);
    after = page.next;
    if (after === undefined || schedules.length >= count) return schedules;
  }
}

/** Finds a schedule by its id, or by the beginning of its id. @throws UsageError */
export async function findSchedule({ client }: Pick<Context, 'client'>, text: string): Promise<string> {
  if (isUuid(text)) return text;
  checkPrefix('a schedule', text);
  const schedules = await firstSchedules(client, Number.POSITIVE_INFINITY);
  const ids = schedules.map(({ id }) => id);
  return uniqueMatch('schedule', text, ids);
}
