/** The records of changes of one schedule that are made at the same moment. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { listAudit, startPart } from '../../../../lib/control/audit/audit-store.ts';
import type { PushSchedules } from '../../../../lib/control/push/schedules/schedules.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { before, request, SERVERS, scheduleZone } from './schedule-zone.ts';

const NONE = { at: undefined, cron: undefined, timeZone: undefined, overlap: undefined, actor: undefined };

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
    change(instance(before('set at = $3', first)), actor, command);
  const recorded = async () => (await listAudit(database, { limit: 10 })).map(({ actor }) => actor);
  await one.create(request({ id, cron: '@daily', job: { command: 'a', servers: SERVERS } }));
  await duringChangeOf('second', () => change(one, 'first', 'b'), 'c');
  t.same(await recorded(), ['second', 'first'], 'in the order of the changes');
  await duringChangeOf('equal', () => change(one, 'third', 'd'), 'd');
  t.same(await recorded(), ['third', 'second', 'first']);
});

t.test('a run that is tried again is recorded with the job that it has started', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const other = instance();
  const { id } = request({});
  const one = instance(
    before('cnapi_run_push_schedule', () => other.change(id, { ...NONE, job: { command: 'new' } }, undefined)),
  );
  await one.create(request({ id, cron: '@daily', job: { command: 'old', servers: SERVERS } }));
  const job = randomUUID();
  const caller = { actor: 'bob', roles: [], tokenUuid: undefined, serverUuid: undefined, object: job };
  const sent = { method: 'POST', path: '/', requestId: 'one', source: '', instance: randomUUID() };
  const record = startPart({ key: randomUUID(), action: 'RunPushSchedule', ...caller, ...sent });
  t.equal(await one.run(id, { jobId: job, actor: 'bob', repeat: undefined, record }), job);
  matchLists(t, await listAudit(database, { limit: 10 }), [{ object: job, details: { command: 'new' } }]);
});
