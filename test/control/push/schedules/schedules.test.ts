/** What callers ask of schedules, and cannot have. */
import t from 'tap';
import { request, scheduleZone } from './schedule-zone.ts';

t.test('a schedule is refused with all that is wrong with its times and its job', async (t) => {
  const { instance } = await scheduleZone(t);
  const one = instance();
  const wrong = { cron: '@dayly', timeZone: 'Berlin' };
  const refused = (...fields: string[]) => ({
    code: 'InvalidParameters',
    errors: Object.assign(
      fields.map((field) => ({ field })),
      { length: fields.length },
    ),
  });
  const inGroup = request({ ...wrong, job: { command: 'x', group: 'wbe' } });
  await t.rejects(one.create(inGroup), refused('cron', 'time_zone', 'job'));
  await t.rejects(one.times({ ...wrong, at: '2029-01-01T00:00:00Z' }, 1), refused('at', 'cron', 'time_zone'));
  const { id } = request({});
  await one.create(request({ id, cron: '@daily' }));
  const both = { ...wrong, at: undefined, overlap: undefined, actor: 'bob', job: { quorum: 0, group: 'wbe' } };
  await t.rejects(one.change(id, both, undefined), refused('cron', 'time_zone', 'job', 'job'));
});
