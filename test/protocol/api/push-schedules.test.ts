import t from 'tap';
import { pushScheduleContracts } from '../../../lib/protocol/api/push-schedules.ts';

const params = pushScheduleContracts.CreatePushSchedule.params;

const TIMES: [name: string, at: string, read: string | undefined][] = [
  ['UTC', '2030-01-01T02:30:00Z', '2030-01-01T02:30:00.000Z'],
  ['with an offset', '2030-01-01T02:30:00+02:00', '2030-01-01T00:30:00.000Z'],
  ['without an offset', '2030-01-01T02:30:00', undefined],
  ['of no day', '2030-02-31T02:30:00Z', undefined],
  ['the last one', '9999-12-31T23:59:59Z', '9999-12-31T23:59:59.000Z'],
  ['in the year 10000 by UTC', '9999-12-31T23:59:59-23:59', undefined],
];

for (const [name, at, read] of TIMES)
  t.test(`the time of a schedule: ${name}`, (t) => {
    const parsed = params.shape.at.safeParse(at);
    t.equal(parsed.data, read, at);
    t.end();
  });

t.test('a job with a member that push jobs do not have is refused, and a long name is cut', (t) => {
  for (const value of ['x', null]) {
    const body = { cron: '@daily', job: { command: 'true', group: 'web', ['x'.repeat(1_000_000)]: value } };
    const { error } = params.safeParse(body);
    t.same(
      error?.issues.map(({ path, message }) => ({ path, message })),
      [{ path: ['job'], message: `${'x'.repeat(100)}: a push job has no such member` }],
    );
  }
  t.end();
});
