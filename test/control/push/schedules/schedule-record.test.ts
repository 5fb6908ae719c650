/** The records of changes of one schedule that are made at the same moment. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { listAudit, startPart } from '../../../../lib/control/audit/audit-store.ts';
import type { PushSchedules } from '../../../../lib/control/push/schedules/schedules.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { request, SERVERS, scheduleZone } from './schedule-zone.ts';

const NONE = { at: undefined, cron: undefined, timeZone: undefined, overlap: undefined, actor: undefined };

/** Calls `first` once, before the statement of a change is sent. */
function beforeChange(first: () => Promise<unknown>) {
  let isDone = false;
  return (database: Queryable): Queryable => ({
    async query(sent, values, options) {
      if (sent.includes('set at = $3') && !isDone) {
        isDone = true;
        await first();
      }
      return database.query(sent, values, options);
    },
  });
}

t.test('a change is recorded by the attempt that makes it, and not if another one has made it already', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  const record = (actor: string) => {
    const caller = { actor, roles: [], tokenUuid: undefined, serverUuid: undefined, object: id };
    const sent = { method: 'POST', path: '/', requestId: actor, source: '', instance: randomUUID() };
    return startPart({ key: randomUUID(), action: 'UpdatePushSchedule', ...caller, ...sent });
  };
  const change = (schedules: PushSchedules, actor: string, command: string) =>
    schedules.change(id, { ...NONE, job: { command } }, record(actor));
  const duringChangeOf = (actor: string, first: () => Promise<void>, command: string) =>
    change(instance(beforeChange(first)), actor, command);
  const recorded = async () => (await listAudit(database, { limit: 10 })).map(({ actor }) => actor);
  await one.create(request({ id, cron: '@daily', job: { command: 'a', servers: SERVERS } }));
  await duringChangeOf('second', () => change(one, 'first', 'b'), 'c');
  t.same(await recorded(), ['second', 'first'], 'in the order of the changes');
  await duringChangeOf('equal', () => change(one, 'third', 'd'), 'd');
  t.same(await recorded(), ['third', 'second', 'first']);
});
