/**
 * GET /events on whole instances over one database: every change is sent once, by any instance, and
 * gaps are reported.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { EventFollower } from '../../support/event-follower.ts';
import { matchLists } from '../../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import type { Teardown } from '../../support/postgres.ts';
import { newMachine, ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';
import { fillOutbox } from './support/full-outbox.ts';

t.setTimeout(FILE_TIMEOUT_MS);

async function follow(t: Teardown, { url }: TestApp, query = '', lastEventId = ''): Promise<EventFollower> {
  const follower = await EventFollower.open(url, query, lastEventId);
  t.teardown(() => follower.close());
  return follower;
}

async function addTicket({ post }: TestApp, serverUuid: string, id: string): Promise<string> {
  const { status, body } = await post<{ uuid: string }>(`/servers/${serverUuid}/tickets`, {
    scope: 'vm',
    id,
    action: 'x',
    expires_at: '2040-01-01T00:00:00Z',
  });
  if (status !== 202) throw new Error(`no ticket: ${status} ${JSON.stringify(body)}`);
  return body.uuid;
}

async function addServer({ post }: TestApp, uuid: string): Promise<void> {
  const { status } = await post(`/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: uuid } });
  if (status !== 200) throw new Error(`no server: ${status}`);
}

/** Creates a ticket with this id; resolves when the follower has received its event. */
async function beUpToDate(app: TestApp, follower: EventFollower, serverUuid: string, id = randomUUID()): Promise<void> {
  await addTicket(app, serverUuid, id);
  await follower.next(({ data }) => data.id === id, `the event of ticket ${id}`);
}

t.test('each change is sent once, on any instance, in the order of its object', async (t) => {
  const zone = await freshZone(t);
  const one = await zone.startApp();
  const other = await zone.startApp();
  const machine = newMachine();
  const { serverUuid } = machine;
  const followers = [await follow(t, one), await follow(t, other)];
  const third = await zone.startApp();

  const agent = await new ScriptedAgent(one.url, machine).open();
  agent.hello();
  await agent.next('welcome');
  const { epoch } = await agent.next('welcome');
  agent.send({ type: 'sysinfo', digest: 'x', sysinfo: { UUID: serverUuid, Hostname: 'h' } });
  agent.send({ type: 'inventory', epoch, tasks: [] });
  await until(async () => (await other.get(`/servers/${serverUuid}`)).status === 200, 'the server to be known');

  const made = await other.post<{ id: string }>(`/servers/${serverUuid}/tasks`, { task: 'nop' });
  const { id, attempt } = await agent.next('task');
  t.equal(id, made.body.id);
  agent.send({ type: 'task_end', id, attempt, outcome: 'complete', result: {}, reportedAt: new Date().toISOString() });
  await agent.next('task_ack');

  const held = await addTicket(one, serverUuid, 'x');
  const waiting = await addTicket(other, serverUuid, 'x');
  t.equal((await one.get(`/tickets/${waiting}`)).status, 200);
  t.equal((await fetch(`${other.url}/tickets/${held}/release`, { method: 'PUT' })).status, 204);
  t.equal(await one.delete(`/tickets/${waiting}`), 204);
  await third.stop();
  agent.socket.terminate();

  for (const follower of followers) {
    await follower.next(({ data }) => data.status === 'unknown', 'the loss of the server');
    await follower.next(({ data }) => data.state === 'stopped', 'the end of the third instance');
    await beUpToDate(one, follower, serverUuid);
    const told = (isIt: (data: Record<string, unknown>) => boolean) => follower.events.filter(({ data }) => isIt(data));
    matchLists(
      t,
      told((data) => 'epoch' in data).map(({ kind, data }) => ({ kind, ...data })),
      [
        { kind: 'status', server_uuid: serverUuid, status: 'running', previous: null, reason: 'connected', epoch },
        {
          kind: 'status',
          status: 'unknown',
          previous: 'running',
          reason: 'closed',
          cnapi_uuid: one.cnapiUuid,
        },
      ],
      'status',
    );
    t.same(
      told((data) => data.id === id).map(({ kind, data }) => [kind, data.task, data.status, data.attempt]),
      [
        ['task', 'nop', 'queued', 0],
        ['task', 'nop', 'active', 1],
        ['task', 'nop', 'complete', 1],
      ],
    );
    const ticket = (uuid: string) => told((data) => data.uuid === uuid).map(({ data }) => data.status);
    t.same(ticket(held), ['active', 'finished']);
    t.same(ticket(waiting), ['queued', 'active', 'deleted']);
    t.same(
      told((data) => data.uuid === third.cnapiUuid).map(({ kind, data }) => [kind, data.state]),
      [
        ['instance', 'live'],
        ['instance', 'stopped'],
      ],
    );
    t.ok(follower.events.every(({ data }) => !Number.isNaN(Date.parse(data.time))));
  }
  const [first = [], second = []] = followers.map(({ events }) => events.map((event) => event.id));
  // One may have connected earlier, while the start of the other instance was not in the log yet.
  const start = first.includes(second[0] ?? '') ? second[0] : first[0];
  const [ofFirst = [], ofSecond = []] = [first, second].map((ids) => ids.slice(ids.indexOf(start ?? '')));
  t.same(ofSecond.slice(0, ofFirst.length), ofFirst, 'both received the same events in the same order');
});

t.test('a filter, a resumed follower, and callers that cannot follow', async (t) => {
  const zone = await freshZone(t);
  const one = await zone.startApp();
  const other = await zone.startApp();
  const mine = randomUUID();
  const others = randomUUID();
  for (const uuid of [mine, others]) await addServer(one, uuid);

  await t.test('a follower can filter by server and kind', async (t) => {
    const filtered = await follow(t, one, `?server=${mine}&kind=status&kind=ticket`);
    const none = await follow(t, one, '?kind=instance,task');
    const all = await follow(t, other, '?kind=ticket');
    await addTicket(other, others, 'a');
    await beUpToDate(one, filtered, mine);
    await beUpToDate(one, all, mine);
    t.same([...new Set(filtered.events.map(({ data }) => data.server_uuid))], [mine]);
    t.same(none.events, []);
    t.equal(all.events.length, 3);
  });

  await t.test('a follower resumes on another instance without a gap and without a repetition', async (t) => {
    const all = await follow(t, other, '?kind=ticket');
    const before = await follow(t, one, '?kind=ticket');
    await until(() => before.lastEventId !== '', 'a first position');
    before.close();
    t.same(before.events, [], 'it has received nothing yet');
    const ids = Array.from({ length: 20 }, () => randomUUID());
    for (const id of ids.slice(0, 10)) await addTicket(one, mine, id);
    let follower = await follow(t, other, '?kind=ticket', before.lastEventId);
    const heard: string[] = [];
    for (const [index, id] of ids.entries()) {
      if (index >= 10) await addTicket(one, mine, id);
      if (!heard.includes(id)) await follower.next(({ data }) => data.id === id, 'the next event');
      if (index % 5 !== 4) continue;
      follower.close();
      heard.push(...follower.events.map(({ data }) => data.id));
      follower = await follow(t, index % 2 === 0 ? one : other, '?kind=ticket', follower.lastEventId);
    }
    t.same(heard, ids);
    await until(() => all.events.length >= 20, 'the other follower');
    const again = await follow(t, one, `?kind=ticket&after=${all.events[4]?.id}`);
    await until(() => again.events.length >= 15, 'the events after the fifth');
    t.same(again.events.slice(0, 15), all.events.slice(5, 20));
  });

  await t.test('an id that is not in this log is refused', async (t) => {
    const last =
      (await zone.database.query<{ last_id: number }>('select max(last_id) as last_id from cnapi_event_numberings'))
        .rows[0]?.last_id ?? 0;
    for (const after of ['x', '17', `${last + 1000}-0`, `${last}-1`]) {
      const { status, body } = await one.get<{ code: string; message: string }>(`/events?after=${after}`);
      t.equal(status, 409, after);
      t.match(body, { code: 'InvalidArgument', message: `${after} is not the id of an event in this log` });
    }
    t.match(await one.get('/events?kind=tasks'), { status: 400, body: { code: 'InvalidParameters' } });
    t.match(await one.get('/events?server=x'), { status: 400 });
  });

  await t.test('a stream ends when its instance leaves, and continues at another', async (t) => {
    const third = await zone.startApp();
    const follower = await follow(t, third);
    await beUpToDate(one, follower, mine);
    third.app.drain('test');
    await until(() => follower.isEnded, 'the stream to end');
    const again = await follow(t, one, '', follower.lastEventId);
    await again.next(({ data }) => data.uuid === third.cnapiUuid && data.state === 'stopped', 'the later events');
    const states = [...follower.events, ...again.events].filter(({ data }) => data.uuid === third.cnapiUuid);
    t.same(
      states.map(({ data }) => data.state),
      ['draining', 'stopped'],
    );
  });
});

t.test('missing events are reported as a gap', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const mine = randomUUID();
  await addServer(app, mine);
  const early = await follow(t, app, '?kind=ticket');
  await beUpToDate(app, early, mine);
  const { lastEventId } = early;

  await t.test('events that are no longer kept are reported as a gap', async (t) => {
    for (let index = 0; index < 5; index += 1) await beUpToDate(app, early, mine);
    await zone.database.query(
      'delete from cnapi_events where id <= (select max(last_id) - 2 from cnapi_event_numberings)',
    );
    // Not the first instance, which still has them in memory.
    const other = await zone.startApp();
    for (const position of [lastEventId, '0']) {
      const late = await follow(t, other, `?after=${position}&kind=ticket`);
      await until(() => late.events.length === 3, 'a gap and the kept events');
      t.match(late.events[0], { kind: 'gap', data: { message: /are not kept any more/ } });
      t.same(late.events.slice(1), early.events.slice(-2));
      const beyond = await follow(t, other, '?kind=ticket', late.events[0]?.id);
      await until(() => beyond.events.length === 2, 'the kept events');
      t.same(beyond.events, early.events.slice(-2), 'the gap is sent once');
    }
    await other.stop();
  });

  await t.test('changes made while no instance read the outbox are reported as a gap', async (t) => {
    await app.stop();
    await fillOutbox(zone.database);
    for (let index = 0; index < 3; index += 1)
      await zone.database.query(
        `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, created_at, queued_at)
         values (gen_random_uuid(), $1::uuid, 'nop', '{}', 1, true, 'x', cnapi_now(), cnapi_now())`,
        [mine],
      );
    const { rows } = await zone.database.query(`select * from cnapi_event_outbox where kind = 'task'`);
    t.same(rows, [], 'an outbox that no instance reads does not grow');
    const next = await zone.startApp();
    const late = await follow(t, next, '', early.lastEventId);
    await late.next(({ data }) => data.uuid === next.cnapiUuid && data.state === 'live', 'the new instance');
    const gaps = late.events.filter(({ kind }) => kind === 'gap');
    t.match(gaps[0], {
      data: { message: /^No instance kept the log of events in time: changes since .* may be missing/ },
    });
    const places = [
      late.events.findIndex(({ kind }) => kind === 'gap'),
      late.events.findIndex(({ data }) => data.uuid === next.cnapiUuid && data.state === 'live'),
    ];
    t.same(
      places,
      places.toSorted((a, b) => a - b),
      'the gap is sent before the events after it',
    );
  });
});

t.test('a log that was set back ends its streams', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const mine = randomUUID();
  await addServer(app, mine);
  const setBack = [
    {
      name: 'to fewer events than were sent',
      sql: `with log as (update cnapi_event_numberings set last_id = last_id - 2
          where id = (select max(id) from cnapi_event_numberings) returning last_id)
        delete from cnapi_events where id > (select last_id from log)`,
    },
    {
      name: 'with as many other events since then',
      sql: `update cnapi_events set stored_at = stored_at - interval '1 second'
        where id = (select last_id from cnapi_event_numberings order by id desc limit 1)`,
    },
  ];
  for (const { name, sql } of setBack) {
    await t.test(name, async (t) => {
      const [reader, idle] = [await follow(t, app), await follow(t, app, '?kind=instance')];
      for (let index = 0; index < 3; index += 1) await beUpToDate(app, reader, mine);
      await zone.database.query(sql);
      await addTicket(app, mine, randomUUID());
      await until(() => reader.isEnded && idle.isEnded, 'the streams to end');
      t.equal((await follow(t, app, '', reader.lastEventId)).status, 409, 'a reader of a lost event is refused');
      const anew = await follow(t, app);
      await beUpToDate(app, anew, mine);
      t.notOk(anew.isEnded, 'a new reader receives the next events');
    });
  }
});
