/** The events of schedules: what happened, when, and who did it. All clocks are the test's. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { changes, request, scheduleZone } from './schedule-zone.ts';

t.test('an event tells what happened; that of a change names who made it, and others name nobody', async (t) => {
  const { at, database, endJobs, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '0 * * * *' }));
  await one.change(id, changes({ job: { user: 'root' } }), undefined);
  await one.pause(id);
  await one.resume(id);
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  await endJobs();
  await one.run(id, { job: randomUUID(), actor: 'carol', repeat: undefined, record: undefined });
  await one.change(id, changes({ overlap: 'queue', actor: 'carol' }), undefined);
  await one.delete(id);
  const { rows } = await database.query<{ data: Record<string, unknown> }>(
    `select body as data from cnapi_event_outbox where kind = 'push_schedule' order by id`,
  );
  t.same(
    rows.map(({ data }) => [data.change, data.changed_by]),
    [
      ['created', null],
      ['changed', 'bob'],
      ['paused', null],
      ['resumed', null],
      ['fired', null],
      ['run', null],
      ['changed', 'carol'],
      ['deleted', null],
    ],
  );
  t.ok(rows.every(({ data }) => data.actor === 'alice'));
  t.equal(rows[0]?.data.at, null);
  t.equal(rows[4]?.data.at, '2030-01-01T01:00:00.000Z', 'as the API gives times');
});
