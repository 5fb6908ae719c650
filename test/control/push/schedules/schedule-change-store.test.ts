/** What a pause and a resume write to a schedule's row, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { pauseSchedule, resumeSchedule } from '../../../../lib/control/push/schedules/schedule-change-store.ts';
import { insertSchedule } from '../../../../lib/control/push/schedules/schedule-store.ts';
import { migrations } from '../../../../lib/control/subsystem-list.ts';
import { freshDatabase } from '../../../support/postgres.ts';

const DUE = Date.parse('2020-01-01T00:00:00Z');

/** A schedule whose single time has come, and whose last time was refused. */
async function dueSchedule(t: Test) {
  const { database } = await freshDatabase(t, { migrations });
  const id = randomUUID();
  const times = { at: DUE, nextAt: DUE, cron: undefined, timeZone: 'UTC', overlap: 'skip' } as const;
  await insertSchedule(database, { id, ...times, job: { command: 'echo' }, actor: 'alice', record: undefined }, 10);
  await database.query(
    `update cnapi_push_schedules set last_outcome = 'refused', last_reason = 'no server', last_message = 'none of web'`,
  );
  const claim = async () => {
    const { rows } = await database.query<{ id: string }>(
      'select cnapi_claim_due_push_schedules(cnapi_now(), 10) as id',
    );
    return rows.map((row) => row.id);
  };
  const last = async () => {
    const { rows } = await database.query(
      'select last_outcome as outcome, last_reason as reason, last_message as message from cnapi_push_schedules',
    );
    return rows[0];
  };
  const resume = (nextAt: number | undefined) => resumeSchedule(database, { id, changes: 0 }, { nextAt, actor: 'bob' });
  return { id, claim, last, resume, pause: () => pauseSchedule(database, id, 'bob') };
}

t.test(
  'a schedule that is paused while an instance tries to start its job fires as soon as it is resumed',
  async (t) => {
    const { id, claim, pause, resume } = await dueSchedule(t);
    t.same(await claim(), [id]);
    t.same(await claim(), [], 'others leave it alone for a while');
    t.ok(await pause());
    t.ok(await resume(DUE));
    t.same(await claim(), [id]);
  },
);

t.test('what came of the last time stays when a schedule is resumed with a time', async (t) => {
  const { last, pause, resume } = await dueSchedule(t);
  await pause();
  t.ok(await resume(DUE));
  t.same(await last(), { outcome: 'refused', reason: 'no server', message: 'none of web' });
});

t.test('a schedule whose only time has passed while it was paused shows nothing of the time before', async (t) => {
  const { last, pause, resume } = await dueSchedule(t);
  await pause();
  t.ok(await resume(undefined));
  t.same(await last(), { outcome: 'missed', reason: 'it was paused', message: null });
});
