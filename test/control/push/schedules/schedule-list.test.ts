/** The list of schedules: pages that are bounded in bytes, while schedules come and go. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { deleteSchedule, pauseSchedule } from '../../../../lib/control/push/schedules/schedule-change-store.ts';
import {
  insertSchedule,
  listSchedules,
  type ScheduleFilter,
} from '../../../../lib/control/push/schedules/schedule-store.ts';
import { migrations } from '../../../../lib/control/subsystem-list.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { parseCursor } from '../../../../lib/protocol/api/contract/cursor.ts';
import { freshDatabase } from '../../../support/postgres.ts';

const NEXT_AT = Date.parse('2100-01-01T00:00:00Z');

/** Returns the ids, the newest first. `sizes`: characters of the commands, the oldest first. */
async function withSchedules(t: Test, sizes: readonly number[]) {
  const { database } = await freshDatabase(t, { migrations });
  const ids: string[] = [];
  for (const size of sizes) {
    const id = randomUUID();
    const job = { command: 'x'.repeat(size), file: `raw:${'y'.repeat(size)}` };
    const fixed = { at: undefined, cron: '@daily', timeZone: 'UTC', overlap: 'skip', actor: 'alice' } as const;
    await insertSchedule(database, { ...fixed, id, job, nextAt: NEXT_AT }, 1_000);
    ids.unshift(id);
  }
  return { database, ids };
}

type Filter = Omit<ScheduleFilter, 'after'>;

async function pagesOf(database: Queryable, filter: Filter, between?: (ids: readonly string[]) => Promise<unknown>) {
  const pages: string[][] = [];
  for (let after: ScheduleFilter['after']; ; ) {
    const { schedules, next } = await listSchedules(database, { ...filter, after });
    const ids = schedules.map(({ id }) => id);
    pages.push(ids);
    if (next === undefined) return pages;
    after = parseCursor(next);
    await between?.(ids);
  }
}

t.test('a page of large jobs is short, and says where the next one begins', async (t) => {
  const { database, ids } = await withSchedules(t, [10_000, 10, 10, 10_000, 10_000]);
  const [a = '', b = '', c = '', d = '', e = ''] = ids;
  t.same(await pagesOf(database, { limit: 100, bytes: 15_000 }), [[a], [b], [c, d, e]]);
  t.same(await pagesOf(database, { limit: 100, bytes: 1 }), [[a], [b], [c], [d], [e]], 'one at least');
  t.same(await pagesOf(database, { limit: 100, bytes: 1_000_000 }), [ids]);
});

t.test('a full page may be the last one', async (t) => {
  const { database, ids } = await withSchedules(t, [1, 1]);
  t.same(await pagesOf(database, { limit: 2, bytes: 1_000_000 }), [ids, []]);
});

t.test('the next page is found although the last schedule of the page before was deleted', async (t) => {
  const { database, ids } = await withSchedules(t, [1, 1, 1, 1, 1]);
  const remove = async (page: readonly string[]) => {
    for (const id of page) await deleteSchedule(database, id);
  };
  t.same((await pagesOf(database, { limit: 2, bytes: 1_000_000 }, remove)).flat(), ids);
});

t.test('pages of one status hold no others', async (t) => {
  const { database, ids } = await withSchedules(t, [1, 1, 1, 1]);
  const [, second = '', , fourth = ''] = ids;
  for (const id of [second, fourth]) await pauseSchedule(database, id, undefined);
  t.same(await pagesOf(database, { status: 'paused', limit: 10, bytes: 1 }), [[second], [fourth]]);
});
