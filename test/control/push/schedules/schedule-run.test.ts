/** Jobs of schedules that callers start beside the times. All clocks are the test's. */
import t from 'tap';
import { createPushJob } from '../../../../lib/control/push/push-store.ts';
import type { ScheduleRow } from '../../../../lib/control/push/schedules/schedule-store.ts';
import type { ScheduleChanges } from '../../../../lib/control/push/schedules/schedules.ts';
import { newPushJob } from '../../../interleavings/push-statements.ts';
import { countWaiting } from '../../../support/lock-waits.ts';
import { until } from '../../../support/until.ts';
import { before, changes, request, run, SERVERS, scheduleZone } from './schedule-zone.ts';

t.test('a caller runs a schedule beside its times, in its own name', async (t) => {
  const { at, database, endJobs, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '0 * * * *' }));
  await one.pause(id, 'carol');
  await at('2030-01-01T00:10:00Z');
  const first = await run(one, id);
  const next = { next_at: new Date('2030-01-01T01:00:00Z'), queued_at: null };
  t.match(await one.get(id), { ...next, is_paused: true, last_outcome: 'started', last_job: first });
  t.same((await one.get(id)).last_at, new Date('2030-01-01T00:10:00Z'));
  await endJobs();
  await one.resume(id, 'carol');
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  await endJobs();
  const third = await run(one, id);
  const { rows } = await database.query(
    `select f.number, f.at, j.actor, j.command from cnapi_push_firings f join cnapi_push_jobs j on j.id = f.job
       order by f.number`,
  );
  const job = { command: 'echo' };
  t.same(rows, [
    { number: 1, at: null, actor: 'bob', ...job },
    { number: 2, at: new Date('2030-01-01T01:00:00Z'), actor: 'alice', ...job },
    { number: 3, at: null, actor: 'bob', ...job },
  ]);
  t.equal((await one.get(id)).last_job, third);
});

t.test('the jobs of a schedule are in the name of the caller who changed its job last', async (t) => {
  const { at, database, endJobs, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '30 * * * *', overlap: 'allow' }));
  const never = { actor: 'alice', job_actor: 'alice', changed_by: null, changed_at: null };
  t.match(await one.get(id), never);
  const hours: readonly [string, Partial<ScheduleChanges>, Partial<ScheduleRow>][] = [
    ['01', { cron: '50 * * * *' }, { job_actor: 'alice', changed_by: 'bob' }],
    ['02', { job: { file: 'raw:other' }, actor: 'carol' }, { job_actor: 'carol', changed_by: 'carol' }],
    ['03', { overlap: 'skip' }, { job_actor: 'carol', changed_by: 'bob' }],
    ['04', { job: { command: 'a' }, actor: undefined }, { job_actor: null, changed_by: null }],
  ];
  for (const [hour, change, expected] of hours) {
    const changed_at = new Date(`2030-01-01T${hour}:10:00Z`);
    await at(changed_at.toISOString());
    await one.change(id, changes(change), undefined);
    t.match(await one.get(id), { ...expected, actor: 'alice', changed_at });
    await at(`2030-01-01T${hour}:59:00Z`);
    await one.scheduler.runDue();
    await endJobs();
  }
  const { rows: jobs } = await database.query(
    'select j.actor from cnapi_push_firings f join cnapi_push_jobs j on j.id = f.job order by f.number',
  );
  t.same(
    jobs.map(({ actor }) => actor),
    ['alice', 'carol', 'carol', null],
  );
});

t.test('a schedule that has ended can be run', async (t) => {
  const { at, endJobs, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, at: '2030-01-01T01:00:00Z' }));
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  await endJobs();
  t.equal(await run(one, id), (await one.get(id)).last_job);
  t.match(await one.get(id), { next_at: null, queued_at: null });
});

t.test('while its last job has not ended, a schedule is run only if its policy allows that', async (t) => {
  const { at, endJobs, instance } = await scheduleZone(t);
  const instances = [instance(), instance()];
  const [one = instance()] = instances;
  for (const overlap of ['skip', 'queue', 'allow'] as const) {
    const { id } = request({});
    await one.create(request({ id, cron: '0 * * * *', overlap }));
    const made = await Promise.allSettled(instances.map((each) => run(each, id)));
    t.equal(made.filter(({ status }) => status === 'fulfilled').length, overlap === 'allow' ? 2 : 1, overlap);
    if (overlap === 'allow') continue;
    const [{ reason } = { reason: undefined }] = made.filter((one) => one.status === 'rejected');
    const job = (await one.get(id)).last_job;
    t.match(reason, { code: 'PushScheduleBusy', message: `policy ${overlap}, and its last job ${job} has not ended` });
  }
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  const outcomes = (await one.list({ limit: 10, bytes: 10_000 })).schedules.map(({ overlap, last_outcome }) => [
    overlap,
    last_outcome,
  ]);
  t.same(Object.fromEntries(outcomes), { skip: 'skipped', queue: 'started', allow: 'started' }, 'at the next time');
  await endJobs();
});

t.test('a repeated request to run a schedule starts one job', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const instances = [instance(), instance(), instance()];
  const [one = instance()] = instances;
  for (const overlap of ['skip', 'allow'] as const) {
    const { id } = request({});
    await one.create(request({ id, cron: '@daily', overlap }));
    const made = await Promise.all(instances.map((each) => run(each, id, { key: `run ${overlap}` })));
    t.equal(new Set(made).size, 1, overlap);
    const { rows } = await database.query('select job from cnapi_push_firings where schedule = $1::uuid', [id]);
    t.same(rows, [{ job: made[0] }]);
  }
});

t.test('a key that is used for another job at the same moment is refused, and starts nothing', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '@daily' }));
  const repeat = { key: 'same', actor: 'bob', hash: 'another request' };
  const { running } = await database.transaction(async (connection) => {
    await createPushJob(connection, { ...newPushJob(SERVERS), actor: 'bob', repeat });
    const running = t.rejects(run(one, id, { key: 'same' }), { code: 'IdempotencyConflict', statusCode: 409 });
    await until(async () => (await countWaiting(database)) > 0, 'the run to wait for the other job');
    return { running };
  });
  await running;
  const { rows } = await database.query('select 1 from cnapi_push_firings');
  t.same(rows, []);
  t.match(await one.get(id), { last_job: null, last_outcome: null });
});

t.test('a schedule that is changed while it is run starts the job that it has after the change', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const other = instance();
  const { id } = request({});
  const one = instance(
    before('cnapi_run_push_schedule', () => other.change(id, changes({ job: { command: 'new' } }), undefined)),
  );
  await one.create(request({ id, cron: '@daily' }));
  const job = await run(one, id);
  const { rows } = await database.query('select id, command from cnapi_push_jobs');
  t.same(rows, [{ id: job, command: 'new' }]);
});

t.test('a schedule that is changed whenever it is to run starts nothing, and its caller is told', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const other = instance();
  const { id } = request({});
  let changed = 0;
  const one = instance((through) => ({
    async query(sent, values, options) {
      if (sent.includes('cnapi_run_push_schedule')) {
        changed += 1;
        await other.change(id, changes({ job: { command: `new ${changed}` } }), undefined);
      }
      return through.query(sent, values, options);
    },
  }));
  await one.create(request({ id, cron: '@daily' }));
  await t.rejects(run(one, id), { code: 'PushScheduleConflict', statusCode: 409 });
  t.same((await database.query('select id from cnapi_push_jobs')).rows, []);
});
