/** Times of schedules, used up by instances over one database. All clocks are the test's. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { listAudit } from '../../../../lib/control/audit/audit-store.ts';
import { expiryRecord } from '../../../../lib/control/push/expiry/expiry-record.ts';
import type { ScheduleRequest } from '../../../../lib/control/push/schedules/schedules.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { request, SERVERS, scheduleZone } from './schedule-zone.ts';

t.test('each time starts one job, although all instances look at the same moment', async (t) => {
  const { at, database, hints, instance, jobs, endJobs } = await scheduleZone(t);
  const all = [instance(), instance(), instance()];
  const schedule = request({ cron: '0 * * * *' });
  await all[0]?.create(schedule);
  await Promise.all(all.map(({ scheduler }) => scheduler.runDue()));
  t.same(await jobs(schedule.id), [], 'not before its time');
  for (const time of ['2030-01-01T01:00:00Z', '2030-01-01T02:00:00.500Z']) {
    await at(time);
    await Promise.all(all.map(({ scheduler }) => scheduler.runDue()));
    await endJobs();
  }
  t.same(await jobs(schedule.id), ['2030-01-01T01:00', '2030-01-01T02:00']);
  const { rows } = await database.query(
    `select j.command, j.actor, j.quorum, j.node_count, count(n.*)::int as nodes,
         exists (select from cnapi_duties d where d.id = j.id and d.kind = 'push-job') as has_duty
       from cnapi_push_jobs j join cnapi_push_nodes n on n.job = j.id group by j.id`,
  );
  const job = { command: 'echo', actor: 'alice', quorum: 1, node_count: 2, nodes: 2, has_duty: true };
  t.same(rows, [job, job]);
  t.equal(
    all.reduce((sum, { scheduler }) => sum + scheduler.stats().started, 0),
    2,
  );
  t.same(hints, ['duties', 'duties'], 'the duty of each job is looked for at once');
});

t.test('neither a wrong clock of the database nor one of an instance starts a job early', async (t) => {
  const { at, instance, instances, jobs, setDatabaseTime } = await scheduleZone(t);
  const one = instance();
  const schedule = request({ at: '2030-01-02T00:00:00Z' });
  await one.create(schedule);
  await setDatabaseTime('2031-01-01T00:00:00Z');
  await one.scheduler.runDue();
  t.same(await jobs(schedule.id), []);
  await at('2030-01-01T23:59:59Z');
  instances[0]?.setTime(Date.parse('2031-01-01T00:00:00Z'));
  await one.scheduler.runDue();
  t.same(await jobs(schedule.id), []);
  t.match(await one.get(schedule.id), { last_outcome: null }, 'and it is not missed');
  await at('2030-01-02T00:00:00Z');
  await one.scheduler.runDue();
  t.same(await jobs(schedule.id), ['2030-01-02T00:00']);
  t.match(await one.get(schedule.id), { next_at: null, last_outcome: 'started' });
});

t.test('no time comes twice when the clocks are set back', async (t) => {
  const { at, instance, jobs, endJobs } = await scheduleZone(t);
  const one = instance();
  const schedule = request({ cron: '0 * * * *' });
  await one.create(schedule);
  for (const time of ['01:00', '00:30', '01:00', '01:30']) {
    await at(`2030-01-01T${time}:00Z`);
    await one.scheduler.runDue();
    await endJobs();
  }
  t.same(await jobs(schedule.id), ['2030-01-01T01:00']);
});

t.test('a time that was used up before is passed, when a late clock has set it again', async (t) => {
  const { at, database, instance, jobs, endJobs } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '0 * * * *' }));
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  await endJobs();
  await database.query(`update cnapi_push_schedules set next_at = '2030-01-01T01:00:00Z' where id = $1::uuid`, [id]);
  await one.scheduler.runDue();
  t.same(await jobs(id), ['2030-01-01T01:00']);
  t.match(await one.get(id), { next_at: new Date('2030-01-01T02:00:00Z'), last_outcome: 'started' });
  const { rows } = await database.query('select tries, held_until from cnapi_push_schedules where id = $1::uuid', [id]);
  t.same(rows, [{ tries: 0, held_until: null }], 'the tries of that time delay no later one');
});

t.test('any number of schedules that fail leaves time for the others', async (t) => {
  const { at, instance, jobs } = await scheduleZone(t);
  const failing = new Set<unknown>();
  const one = instance((database) => ({
    query(text, values: readonly unknown[] = [], options) {
      if (text.includes('cnapi_fire_push_schedule') && values.some((value) => failing.has(value)))
        throw new DatabaseBusyError('locked');
      return database.query(text, values, options);
    },
  }));
  const healthy = request({ at: '2030-01-01T00:30:00Z' });
  for (let n = 0; n < 25; n += 1) {
    const schedule = request({ at: '2030-01-01T00:10:00Z' });
    failing.add(schedule.id);
    await one.create(schedule);
  }
  await one.create(healthy);
  await at('2030-01-01T00:30:00Z');
  for (let round = 0; round < 4; round += 1) await one.scheduler.runDue();
  t.same(await jobs(healthy.id), [], 'six are claimed at once, the oldest first');
  await one.scheduler.runDue();
  t.same(await jobs(healthy.id), ['2030-01-01T00:30']);
});

t.test('after an outage the last time within an hour is made up for, and an earlier one is missed', async (t) => {
  const { at, instance, jobs } = await scheduleZone(t);
  const one = instance();
  const hourly = request({ cron: '0 * * * *' });
  const once = request({ at: '2030-01-01T01:00:00Z' });
  await one.create(hourly);
  await one.create(once);
  await at('2030-01-01T05:20:00Z');
  await one.scheduler.runDue();
  t.same(await jobs(hourly.id), ['2030-01-01T05:00']);
  t.same(await jobs(once.id), []);
  t.match(await one.get(once.id), { next_at: null, last_outcome: 'missed', last_reason: /within 60 minutes/ });
});

t.test('while its last job runs, a time is skipped, queued or starts another job', async (t) => {
  const { at, instance, jobs, endJobs } = await scheduleZone(t);
  const one = instance();
  const [skip, queue, allow] = (['skip', 'queue', 'allow'] as const).map((overlap) =>
    request({ cron: '0 * * * *', overlap }),
  ) as [ScheduleRequest, ScheduleRequest, ScheduleRequest];
  for (const schedule of [skip, queue, allow]) await one.create(schedule);
  for (const hour of [1, 2, 3]) {
    await at(`2030-01-01T0${hour}:00:00Z`);
    await one.scheduler.runDue();
  }
  const [first, second, third] = [1, 2, 3].map((hour) => `2030-01-01T0${hour}:00`);
  t.same(await jobs(skip.id), [first]);
  t.match(await one.get(skip.id), { last_outcome: 'skipped', last_reason: /had not ended/ });
  t.same(await jobs(queue.id), [first]);
  t.match(await one.get(queue.id), {
    queued_at: new Date(`${second}Z`),
    last_outcome: 'skipped',
    last_reason: /waits/,
  });
  t.same(await jobs(allow.id), [first, second, third]);
  await endJobs();
  await one.scheduler.runDue();
  t.same(await jobs(queue.id), [first, second], 'the time that waited');
  t.match(await one.get(queue.id), { queued_at: null, next_at: new Date('2030-01-01T04:00:00Z') });
  t.same(await jobs(skip.id), [first], 'a time that was skipped does not come back');
});

t.test('a job that cannot be created is refused, with the reason, and the next time is tried', async (t) => {
  const { at, instance, jobs, known } = await scheduleZone(t);
  const one = instance();
  const schedule = request({ cron: '0 * * * *' });
  await one.create(schedule);
  const [gone = ''] = SERVERS;
  known.delete(gone);
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  t.match(await one.get(schedule.id), { last_outcome: 'refused', last_reason: 'InvalidParameters: servers' });
  t.match(await one.get(schedule.id), { last_message: new RegExp(`no such servers: ${gone}`) });
  known.set(gone, 'back');
  await at('2030-01-01T02:00:00Z');
  await one.scheduler.runDue();
  t.same(await jobs(schedule.id), ['2030-01-01T02:00']);
  t.match(await one.get(schedule.id), { last_reason: null, last_message: null });
});

/** Adds the maximum number of unfinished jobs. */
const fillWithJobs = (database: Queryable) =>
  database.query(
    `insert into cnapi_push_jobs (id, command, options, node_count, quorum, voting_timeout_ms, run_timeout_ms,
         abort_timeout_ms, state)
       select gen_random_uuid(), 'x', '{}', 1, 1, 1, 1, 1, 'running' from generate_series(1, 2000)`,
  );

t.test('while as many jobs as may be are unfinished, a time is refused once, and the next one is tried', async (t) => {
  const { at, database, instance, jobs, endJobs } = await scheduleZone(t);
  const one = instance();
  const schedule = request({ cron: '0 * * * *' });
  await one.create(schedule);
  await fillWithJobs(database);
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  await one.scheduler.runDue();
  t.match(await one.get(schedule.id), {
    last_outcome: 'refused',
    last_reason: 'TooManyPushJobs',
    last_message: /try again/,
    next_at: new Date('2030-01-01T02:00:00Z'),
  });
  t.same(one.scheduler.stats(), { started: 0, passed: 1, refused: 1 });
  await endJobs();
  await at('2030-01-01T02:00:00Z');
  await one.scheduler.runDue();
  t.same(await jobs(schedule.id), ['2030-01-01T02:00']);
});

t.test('a schedule of one time waits for room, and is missed when there is none for an hour', async (t) => {
  const { at, database, instance, jobs, endJobs, rest } = await scheduleZone(t);
  const one = instance();
  const [early, late] = ['2030-01-01T01:00:00Z', '2030-01-01T02:00:00Z'].map((time) => request({ at: time }));
  for (const schedule of [early, late]) await one.create(schedule as ScheduleRequest);
  const stateOf = async (schedule: ScheduleRequest | undefined) => {
    const { next_at, last_outcome, last_reason, last_message } = await one.get(schedule?.id ?? '');
    return { next_at, last_outcome, last_reason, last_message };
  };
  await fillWithJobs(database);
  for (const time of ['01:00:00', '01:00:30', '02:00:00']) {
    await at(`2030-01-01T${time}Z`);
    await rest();
    await one.scheduler.runDue();
    t.match(await stateOf(early), { next_at: new Date('2030-01-01T01:00:00Z'), last_outcome: null }, time);
  }
  await at('2030-01-01T02:00:01Z');
  await rest();
  await one.scheduler.runDue();
  t.match(await stateOf(early), {
    ...{ next_at: null, last_outcome: 'missed', last_reason: 'TooManyPushJobs', last_message: /try again/ },
  });
  await endJobs();
  await rest();
  await one.scheduler.runDue();
  t.same(await jobs(late?.id ?? ''), ['2030-01-01T02:00'], 'one that has time left starts');
  t.match(await stateOf(late), { next_at: null, last_outcome: 'started', last_reason: null });
  t.same(one.scheduler.stats(), { started: 1, passed: 1, refused: 0 });
});

t.test('an expression that never comes is refused, with the name of its field', async (t) => {
  const { instance } = await scheduleZone(t);
  const errors = [{ field: 'cron', message: /names no time of the next 41 years/ }];
  await t.rejects(instance().create(request({ cron: '0 0 31W 2 *' })), { statusCode: 400, errors });
});

t.test('the next times are told before there is a schedule, and a wrong time is refused', async (t) => {
  const { at, instance } = await scheduleZone(t);
  const one = instance();
  await at('2030-01-01T00:00:00Z');
  const times = async (cron: string, timeZone?: string) =>
    (await one.times({ at: undefined, cron, timeZone }, 2)).map((time) => time.toISOString());
  t.same(await times('30 2 * * *', 'Europe/Berlin'), ['2030-01-01T01:30:00.000Z', '2030-01-02T01:30:00.000Z']);
  const once = await one.times({ at: '2030-01-01T05:00:00Z', cron: undefined, timeZone: undefined }, 5);
  t.same(once, [new Date('2030-01-01T05:00:00Z')]);
  for (const [cron, zone, field] of [
    ['99 * * * *', 'UTC', 'cron'],
    ['@daily', 'Nowhere', 'time_zone'],
  ])
    await t.rejects(times(cron ?? '', zone), { errors: [{ field }] });
});

t.test('a group that does not exist is refused when the schedule is created', async (t) => {
  const { instance } = await scheduleZone(t);
  const misspelt = { ...request({ cron: '@daily' }), job: { command: 'true', group: 'wbe' } };
  await t.rejects(instance().create(misspelt), { errors: [{ field: 'job', message: /group: .*"wbe"/ }] });
});

t.test('times that pass while it is paused are left out', async (t) => {
  const { at, instance, jobs } = await scheduleZone(t);
  const one = instance();
  const [cron, once] = [request({ cron: '0 * * * *' }), request({ at: '2030-01-01T01:30:00Z' })];
  for (const { id, ...rest } of [cron, once]) {
    await one.create({ id, ...rest });
    await one.pause(id, 'carol');
    await one.pause(id, 'carol');
  }
  await at('2030-01-01T02:10:00Z');
  await one.scheduler.runDue();
  for (const { id } of [cron, once]) await one.resume(id, 'carol');
  await one.resume(cron.id, 'carol');
  await one.scheduler.runDue();
  t.same([await jobs(cron.id), await jobs(once.id)], [[], []]);
  t.match(await one.get(cron.id), { next_at: new Date('2030-01-01T03:00:00Z') });
  t.match(await one.get(once.id), { next_at: null, last_outcome: 'missed', last_reason: 'it was paused' });
  await t.rejects(one.pause(once.id, 'carol'), { code: 'PushScheduleEnded', statusCode: 409 });
  await t.rejects(one.resume(once.id, 'carol'), { code: 'PushScheduleEnded', statusCode: 409 });
  await t.rejects(one.resume(randomUUID(), 'carol'), { code: 'ResourceNotFound', statusCode: 404 });
});

t.test('there are at most a thousand schedules that may still fire', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const one = instance();
  await database.query(
    `insert into cnapi_push_schedules (id, cron, time_zone, overlap, job, job_bytes, next_at)
       select gen_random_uuid(), '@daily', 'UTC', 'skip', '{}', 2, case when n > 1 then timestamptz '2031-01-01' end
         from generate_series(1, 1000) as n`,
  );
  await one.create(request({ cron: '@daily' }));
  await t.rejects(one.create(request({ cron: '@daily' })), { code: 'TooManyPushSchedules', statusCode: 409 });
});

t.test('of several instances only one does the work for a schedule, until its claim is over', async (t) => {
  const { at, database, instance, jobs } = await scheduleZone(t);
  const statements: string[] = [];
  const counting = (inner: Queryable): Queryable => ({
    query(text, values, options) {
      statements.push(text);
      return inner.query(text, values, options);
    },
  });
  const dying = instance(() => ({
    query(text, values, options) {
      if (text.includes('cnapi_fire_push_schedule')) throw new DatabaseBusyError('slow');
      return database.query(text, values, options);
    },
  }));
  const other = instance(counting);
  const schedule = request({ at: '2030-01-01T00:10:00Z' });
  await dying.create(schedule);
  await at('2030-01-01T00:10:00Z');
  await dying.scheduler.runDue();
  for (const time of ['00:10:00', '00:10:09']) {
    await at(`2030-01-01T${time}Z`);
    await other.scheduler.runDue();
  }
  t.equal(statements.filter((text) => text.includes('cnapi_fire_push_schedule')).length, 0);
  await at('2030-01-01T00:10:11Z');
  await other.scheduler.runDue();
  t.same(await jobs(schedule.id), ['2030-01-01T00:10']);
});

t.test('a claim from before the clock of the database was set back holds nobody up', async (t) => {
  const { at, database, instance, jobs } = await scheduleZone(t);
  const one = instance();
  const schedule = request({ at: '2030-01-01T00:10:00Z' });
  await one.create(schedule);
  await database.query(`update cnapi_push_schedules set held_until = '2030-01-01T01:00:00Z'`);
  await at('2030-01-01T00:10:00Z');
  await one.scheduler.runDue();
  t.same(await jobs(schedule.id), ['2030-01-01T00:10']);
});

/**
 * Adds a job of the schedule for each row of `jobs`, which has the number of nodes and whether they
 * run.
 */
const addOldJobs = (database: Queryable, schedule: string, jobs: readonly { nodes: number; runs?: boolean }[]) =>
  database.query(
    `with times as (
       select gen_random_uuid() as job, timestamptz '2030-01-01' + j.n * interval '1 hour' as at, j.*
         from unnest($2::int[], $3::boolean[]) with ordinality as j (nodes, runs, n)
     ), firings as (
       insert into cnapi_push_firings (schedule, at, number, job) select $1::uuid, at, n, job from times
     ), fired as (
       update cnapi_push_schedules set fired = (select count(*) from times) where id = $1::uuid
     )
     insert into cnapi_push_jobs (id, command, options, node_count, quorum, voting_timeout_ms, run_timeout_ms,
         abort_timeout_ms, state, outcome)
       select job, 'x', '{}', nodes, 1, 1, 1, 1, case when runs then 'running' else 'ended' end,
           case when not runs then 'complete' end from times`,
    [schedule, jobs.map(({ nodes }) => nodes), jobs.map(({ runs = false }) => runs)],
  );

t.test('of the jobs of a schedule, those that ended are kept up to a hundred', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '@daily' }));
  await addOldJobs(database, id, [{ nodes: 1, runs: true }, ...Array(102).fill({ nodes: 1 })]);
  const deleteOld = () => one.deleteOldJobs(expiryRecord(randomUUID()));
  t.equal(await deleteOld(), 2);
  t.equal(await deleteOld(), 0);
  const { rows } = await database.query('select count(*)::int as count from cnapi_push_jobs');
  t.same(rows, [{ count: 101 }], 'the one that runs is kept');
  const record = { action: 'DeletePushJob', actor: 'expiry', details: { command: 'x', status: 'complete' } };
  matchLists(t, await listAudit(database, { limit: 10 }), [record, record]);
});

t.test('old jobs of schedules are deleted by their number of nodes, and at least one at a time', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '@daily' }));
  await addOldJobs(database, id, [{ nodes: 20_000 }, ...Array(103).fill({ nodes: 5_000 })]);
  const deleteOld = () => one.deleteOldJobs(expiryRecord(randomUUID()));
  t.same([await deleteOld(), await deleteOld(), await deleteOld()], [1, 2, 1]);
});
