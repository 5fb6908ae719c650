/** What callers change in schedules. All clocks are the test's. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { ScheduleChanges } from '../../../../lib/control/push/schedules/schedules.ts';
import { before, changes, request, run, SERVERS, scheduleZone } from './schedule-zone.ts';

t.test('the next time changes only with the times of a schedule', async (t) => {
  const { at, database, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '0 12 * * *' }));
  await at('2030-01-02T00:00:00Z');
  const nextOf = async () => (await one.get(id)).next_at?.toISOString();
  // A time that has come and is not used up yet.
  const due = '2030-01-01T12:00:00.000Z';
  const rows: readonly [string, Partial<ScheduleChanges>, string][] = [
    ['another command', { job: { command: 'other' } }, due],
    ['another policy', { overlap: 'queue' }, due],
    ['the same expression', { cron: '0 12 * * *' }, due],
    ['the same time zone', { timeZone: 'UTC' }, due],
    ['another time zone', { timeZone: 'Europe/Berlin' }, '2030-01-02T11:00:00.000Z'],
    ['another expression, in the same time zone', { cron: '0 13 * * *' }, '2030-01-02T12:00:00.000Z'],
    ['a single time', { at: '2030-03-01T10:00:00.000Z' }, '2030-03-01T10:00:00.000Z'],
    ['a time zone of a single time', { timeZone: 'UTC' }, '2030-03-01T10:00:00.000Z'],
    ['an expression again', { cron: '@daily' }, '2030-01-03T00:00:00.000Z'],
  ];
  for (const [name, change, next] of rows) {
    await one.change(id, changes(change), undefined);
    t.equal(await nextOf(), next, name);
  }
  t.match(await one.get(id), { at: null, cron: '@daily', overlap: 'queue', job: { command: 'other' } });
  const { rows: events } = await database.query(`select 1 from cnapi_event_outbox where kind = 'push_schedule'`);
  const same = rows.filter(([name]) => name.startsWith('the same'));
  t.equal(events.length, 1 + rows.length - same.length, 'each change is an event');
});

t.test('an update that changes nothing writes nothing', async (t) => {
  const { database, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '@daily', job: { command: 'a', servers: SERVERS } }));
  await one.change(id, changes({ job: { user: 'root' } }), undefined);
  await database.query('update cnapi_push_schedules set tries = 3, held_until = cnapi_now()');
  const row = async () => (await database.query('select s.*, xmin::text from cnapi_push_schedules s')).rows;
  const before = await row();
  const record = () => t.fail('a record is written') as never;
  const same = [
    {},
    { cron: '@daily' },
    { timeZone: 'UTC' },
    { overlap: 'skip' },
    { job: { user: 'root' } },
    { job: {} },
  ];
  for (const fields of same) await one.change(id, changes(fields as Partial<ScheduleChanges>), record);
  t.same(await row(), before);
  await one.change(id, { ...changes({ job: {} }), actor: 'carol' }, undefined);
  t.notSame(await row(), before, 'another caller answers for the job');
});

t.test('members of the job are replaced one by one, and null removes one', async (t) => {
  const { instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  const job = { command: 'a', from_job: randomUUID(), from_status: 'failed', file: 'raw:x', quorum: '50%' };
  await one.create(request({ id, cron: '@daily', job }));
  await one.change(id, changes({ job: { where: ['hostname=web-*'], quorum: null, user: 'root' } }), undefined);
  const { job: changed, has_file } = await one.get(id);
  t.same({ changed, has_file }, { changed: { command: 'a', where: ['hostname=web-*'], user: 'root' }, has_file: true });
  await one.change(id, changes({ job: { servers: SERVERS } }), undefined);
  t.same((await one.get(id)).job, { command: 'a', servers: SERVERS, user: 'root' });
});

t.test('a change that would make no valid schedule is refused, and changes nothing', async (t) => {
  const { instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, cron: '@daily' }));
  const rows: readonly [string, Partial<ScheduleChanges>, RegExp][] = [
    ['both times', { at: '2030-03-01T10:00:00Z', cron: '@daily' }, /not both/],
    ['a time that has passed', { at: '2029-03-01T10:00:00Z' }, /not in the future/],
    ['a time zone', { timeZone: 'Berlin' }, /not the name of a time zone/],
    ['an expression', { cron: '99 * * * *' }, /99/],
    ['no command', { job: { command: null } }, /command: /],
    ['an unknown member', { job: { comand: 'x' } }, /comand/],
    ['an unknown member to be removed', { job: { comand: null } }, /^comand: a push job has no such member$/],
    ['a long name', { job: { ['x'.repeat(1_000_000)]: null } }, /^x{100}: a push job has no such member$/],
    ['a secret', { job: { env: { A: '1' }, secret_env: ['A'] } }, /keeps no secrets/],
    ['no servers', { job: { servers: null } }, /servers: value is missing/],
    ['two kinds of servers', { job: { servers: SERVERS, where: ['uuid=*'] } }, /servers: .* combined with where/],
    ['a status without its job', { job: { from_status: 'failed' } }, /from_status: value needs from_job/],
    ['a quorum', { job: { quorum: 3 } }, /quorum: value is 3, and there are 2 servers/],
    ['servers below the quorum', { job: { servers: SERVERS.slice(1), quorum: 2 } }, /quorum: .* there is 1 server/],
    ['a long ticket', { job: { ticket: { scope: 'é'.repeat(129), id: 'x' } } }, /^ticket: scope: .* 256 bytes$/],
    ['a group', { job: { group: 'wbe' } }, /no server group "wbe"/],
  ];
  for (const [name, change, why] of rows)
    await t.rejects(one.change(id, changes(change), undefined), { errors: [{ message: why }] }, name);
  t.match(await one.get(id), { cron: '@daily', time_zone: 'UTC', job: { command: 'echo', servers: SERVERS } });
  await t.rejects(one.change(randomUUID(), changes({}), undefined), { code: 'ResourceNotFound' });
});

t.test('a schedule that has ended cannot be changed', async (t) => {
  const { at, instance } = await scheduleZone(t);
  const one = instance();
  const { id } = request({});
  await one.create(request({ id, at: '2030-01-01T01:00:00Z' }));
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  await t.rejects(one.change(id, changes({ at: '2030-02-01T00:00:00Z' }), undefined), { code: 'PushScheduleEnded' });
});

t.test('a job that starts while the schedule is changed is that of before or that of after, whole', async (t) => {
  const { at, database, instance, jobs } = await scheduleZone(t);
  const other = instance();
  const { id } = request({});
  const change = changes({ overlap: 'allow', job: { command: 'new', servers: SERVERS.slice(0, 1), quorum: null } });
  const one = instance(before('cnapi_fire_push_schedule', () => other.change(id, change, undefined)));
  await one.create(request({ id, cron: '0 * * * *' }));
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  t.same(await jobs(id), [], 'what was read before the change starts nothing');
  await one.scheduler.runDue();
  t.same(await jobs(id), ['2030-01-01T01:00'], 'the time is still due');
  const { rows } = await database.query('select command, node_count, quorum from cnapi_push_jobs');
  t.same(rows, [{ command: 'new', node_count: 1, quorum: 1 }]);
});

t.test('a time of before a change is neither passed nor noted as failed after it', async (t) => {
  const { at, instance } = await scheduleZone(t);
  const other = instance();
  const { id } = request({});
  const one = instance(
    before('cnapi_pass_push_schedule', () => other.change(id, changes({ cron: '0 3 * * *' }), undefined)),
  );
  await one.create(request({ id, at: '2030-01-01T01:00:00Z' }));
  await at('2030-01-01T02:30:00Z');
  await one.scheduler.runDue();
  t.match(await one.get(id), { next_at: new Date('2030-01-01T03:00:00Z'), last_outcome: null });
});

t.test('a schedule that is changed while it is resumed goes on with its new times', async (t) => {
  const { instance } = await scheduleZone(t);
  const other = instance();
  const { id } = request({});
  const one = instance(
    before('set is_paused = false', () => other.change(id, changes({ cron: '0 7 * * *' }), undefined)),
  );
  await one.create(request({ id, cron: '0 5 * * *' }));
  await one.pause(id, 'carol');
  await one.resume(id, 'carol');
  t.match(await one.get(id), { is_paused: false, next_at: new Date('2030-01-01T07:00:00Z') });
});

t.test('a time that waits when the schedule is paused is left out, also if it is the only one', async (t) => {
  const { at, endJobs, instance, jobs } = await scheduleZone(t);
  const one = instance();
  const time = new Date('2030-01-01T01:00:00Z');
  const overlap = 'queue';
  const [cron, once, moved] = [
    request({ cron: '0 * * * *', overlap }),
    request({ at: time.toISOString(), overlap }),
    request({ at: time.toISOString(), overlap }),
  ];
  const all = [cron, once, moved];
  for (const schedule of all) {
    await one.create(schedule);
    await run(one, schedule.id);
  }
  await at('2030-01-01T01:00:00Z');
  await one.scheduler.runDue();
  t.match(await one.get(once.id), { next_at: null, queued_at: time }, 'its only time waits');
  for (const { id } of all) await one.pause(id, 'carol');
  await endJobs();
  await one.scheduler.runDue();
  for (const { id } of all) t.same(await jobs(id), [], 'while it is paused, no job starts');
  t.match(await one.get(cron.id), { is_paused: true, next_at: new Date('2030-01-01T02:00:00Z'), queued_at: null });
  t.match(await one.get(once.id), { is_paused: true, next_at: time, queued_at: null, last_outcome: 'started' });
  await one.change(moved.id, changes({ at: '2030-01-01T03:00:00Z' }), undefined);
  for (const { id } of all) await one.resume(id, 'carol');
  const ended = { next_at: null, queued_at: null, last_at: time, last_outcome: 'missed', last_reason: 'it was paused' };
  t.match(await one.get(once.id), ended, 'it has ended');
  t.match(await one.get(moved.id), { is_paused: false, next_at: new Date('2030-01-01T03:00:00Z') });
  await at('2030-01-01T03:00:00Z');
  await one.scheduler.runDue();
  t.same(await Promise.all(all.map(({ id }) => jobs(id))), [['2030-01-01T03:00'], [], ['2030-01-01T03:00']]);
});

t.test('of two changes at the same moment none is lost', async (t) => {
  const { instance } = await scheduleZone(t);
  const other = instance();
  const { id } = request({});
  const one = instance(
    before('set at = $3', () => other.change(id, changes({ job: { command: 'other' } }), undefined)),
  );
  await one.create(request({ id, cron: '@daily' }));
  await one.change(id, changes({ job: { user: 'root' } }), undefined);
  t.match((await one.get(id)).job, { command: 'other', user: 'root' });
});

t.test('many changes at the same moment are all applied', async (t) => {
  const { instance } = await scheduleZone(t);
  const instances = [instance(), instance(), instance()] as const;
  const { id } = request({});
  await instances[0].create(request({ id, cron: '@daily' }));
  const all = [{ user: 'root' }, { dir: '/' }, { quorum: 1 }, { concurrency: 2 }, { max_failures: 3 }];
  const more = [
    { run_timeout_ms: 60_000 },
    { voting_timeout_ms: 30_000 },
    { command: 'other' },
    { capture_output: true },
  ];
  await Promise.all(
    [...all, ...more].map((job, index) => instances[(index % 3) as 0 | 1 | 2].change(id, changes({ job }), undefined)),
  );
  const { job } = await instances[0].get(id);
  for (const change of [...all, ...more]) t.match(job, change);
});
