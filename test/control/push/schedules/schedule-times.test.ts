/** What the times of a schedule cost. */
import t from 'tap';
import { nextTimes } from '../../../../lib/control/push/schedules/schedule-times.ts';

t.test('the next times of a schedule read its expression and its time zone once', (t) => {
  const { DateTimeFormat } = Intl;
  let read = 0;
  t.teardown(() => Object.assign(Intl, { DateTimeFormat }));
  Object.assign(Intl, {
    DateTimeFormat: class extends DateTimeFormat {
      constructor(...options: ConstructorParameters<typeof DateTimeFormat>) {
        super(...options);
        read += 1;
      }
    },
  });
  const schedule = { at: undefined, cron: '0 12 * * *', timeZone: 'Europe/Berlin' };
  const times = nextTimes(schedule, Date.parse('2030-03-29T12:00:00Z'), 3);
  t.same(
    times.map((time) => new Date(time).toISOString()),
    ['2030-03-30T11:00:00.000Z', '2030-03-31T10:00:00.000Z', '2030-04-01T10:00:00.000Z'],
  );
  t.equal(read, 1);
  const once = { ...schedule, at: 5, cron: undefined };
  t.same([nextTimes(once, 4, 3), nextTimes(once, 5, 3), nextTimes(schedule, 0, 0)], [[5], [], []]);
  t.end();
});
