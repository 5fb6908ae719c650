/** The events of schedules: what happened, when, and who did it. All clocks are the test's. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { changes, request, scheduleZone } from './schedule-zone.ts';

t.test(
  'an event tells what happened; that of a change, pause or resumption names its caller, and others nobody',
  async (t) => {
    const { at, database, endJobs, instance } = await scheduleZone(t);
    const one = instance();
    const { id } = request({});
    await one.create(request({ id, cron: '0 * * * *' }));
    await one.change(id, changes({ job: { user: 'root' } }), undefined);
    await one.pause(id, 'dan');
    await one.resume(id, 'dan');
    await at('2030-01-01T01:00:00Z');
    await one.scheduler.runDue();
    await endJobs();
    await one.run(id, { jobId: randomUUID(), actor: 'carol', repeat: undefined, record: undefined });
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
        ['paused', 'dan'],
        ['resumed', 'dan'],
        ['fired', null],
        ['run', null],
        ['changed', 'carol'],
        ['deleted', null],
      ],
    );
    t.ok(rows.every(({ data }) => data.actor === 'alice'));
    t.equal(rows[0]?.data.at, null);
    t.equal(rows[4]?.data.at, '2030-01-01T01:00:00.000Z', 'as the API gives times');
  },
);

t.test('a schedule names who was the last to change, pause or resume it', async (t) => {
  const { instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '0 * * * *' }));
  t.match(await one.get(id), { changed_by: null, changed_at: null });
  await one.pause(id, 'dan');
  t.match(await one.get(id), { changed_by: 'dan', changed_at: Date });
  await one.pause(id, 'erin');
  t.match(await one.get(id), { changed_by: 'dan' }, 'it was paused already');
  await one.resume(id, 'erin');
  t.match(await one.get(id), { changed_by: 'erin' });
  await one.resume(id, 'dan');
  t.match(await one.get(id), { changed_by: 'erin' }, 'it was resumed already');
});
