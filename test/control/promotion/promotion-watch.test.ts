import { randomUUID } from 'node:crypto';
import t from 'tap';
import { PromotionWatch } from '../../../lib/control/promotion/promotion-watch.ts';
import { type Session, SessionTable } from '../../../lib/control/roster/sessions/session.ts';
import type { Logger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import type { InstanceAddress } from '../../../lib/protocol/link/frames.ts';
import { agent } from '../../agent/agent-rig.ts';
import { freshZone } from '../../support/apps.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const HERE = { uuid: '00000000-0000-4000-8000-0000000000aa', host: 'here', port: 1 };
const THERE = { uuid: '00000000-0000-4000-8000-0000000000bb', host: 'there', port: 1 };
const [AT_WORK, IDLE] = ['00000000-0000-4000-8000-00000000000a', '00000000-0000-4000-8000-00000000000b'];

function start(answer: (text: string) => object[], { takesAgents = false } = {}) {
  const clock = new ManualClock();
  const sessions = new SessionTable();
  const asked: string[] = [];
  const places: InstanceAddress[][] = [];
  const dismissed: string[] = [];
  const said: string[] = [];
  const say = (_: object, message: string) => void said.push(message);
  const log = { warn: say, error: say } as unknown as Logger;
  const database = { query: async (text: string) => ({ rows: answer(text), rowCount: 0 }) } as unknown as Queryable;
  const add = (serverUuid: string) => {
    const askToLeave = (_: string, addresses: InstanceAddress[]) => {
      asked.push(serverUuid);
      places.push(addresses);
    };
    const socket = { askToLeave } as unknown as Session['socket'];
    const fields = {
      serverUuid,
      epoch: 1,
      incarnation: 'i',
      journalId: 'j',
      capabilities: new Set<string>(),
      socket,
      run: 'r',
    };
    const added = sessions.add({ ...fields, heardAt: 0 });
    if (added !== undefined) added.session.isInventoried = true;
    return added?.session as Session;
  };
  const watch = new PromotionWatch({
    database,
    sessions,
    cnapiUuid: HERE.uuid,
    addresses: () => [HERE, THERE],
    takesAgents: () => takesAgents,
    closeWithoutStatusChange: (session) => {
      dismissed.push(session.serverUuid);
      sessions.end(session);
    },
    periodMs: 5_000,
    askAgainMs: 8_000,
    clock,
    log,
  });
  watch.start();
  return { add, asked, clock, dismissed, places, said, sessions, watch };
}

t.test('after a promotion agents with open tasks are asked to move, less and less often, until they did', async (t) => {
  let timeline = '00000001';
  const { add, asked, clock, dismissed, said, sessions, watch } = start((text) =>
    /timeline/.test(text) ? [{ timeline }] : [{ server_uuid: AT_WORK }],
  );
  const session = add(AT_WORK as string);
  add(IDLE as string);
  await clock.advance(20_000);
  t.same(asked, []);
  timeline = '0000000A';
  await clock.advance(5_000);
  t.same(asked, [AT_WORK]);
  for (let each = 0; each < 60; each++) await clock.advance(1_000);
  t.ok(asked.length > 5 && asked.length < 15, 'less and less often');
  const before = asked.length;
  sessions.end(session);
  await clock.advance(60_000);
  t.equal(asked.length, before);
  t.notOk(asked.includes(IDLE as string));
  t.equal(said.length, 1);
  t.same(dismissed, [], 'this instance admits no agents now, so it closes no session');
  await watch.stop();
});

t.test('agents that stay are closed at a pace, and told first to return to this instance', async (t) => {
  let timeline = '1';
  const servers = Array.from({ length: 300 }, () => ({ server_uuid: randomUUID() as string }));
  const answer = (text: string) => (/timeline/.test(text) ? [{ timeline }] : servers);
  const { add, clock, dismissed, places, watch } = start(answer, { takesAgents: true });
  for (const { server_uuid } of servers) add(server_uuid);
  await clock.advance(5_000);
  timeline = '2';
  let most = 0;
  for (let each = 0; each < 30; each++) {
    const before = dismissed.length;
    await clock.advance(1_000);
    most = Math.max(most, dismissed.length - before);
    if (dismissed.length > 0 && before === 0) t.ok(places.length > 3 * 200, 'not before they were asked three times');
  }
  t.same(dismissed.toSorted(), servers.map(({ server_uuid }) => server_uuid).toSorted());
  t.equal(most, 200);
  t.same(places[0], [HERE, THERE]);
  t.same(places.at(-1), [HERE]);
  await watch.stop();
});

t.test('with one instance an end that a standby had not got is missed, and its server stays running', async (t) => {
  const zone = await freshZone(t);
  const db = zone.database;
  // Only the database's timeline is simulated here.
  await db.query(`create table timeline as select '00000001' as name`);
  await db.query('create table reading (at timestamptz default clock_timestamp())');
  await db.query(
    `create function pg_walfile_name(pg_lsn) returns text language sql
       as 'insert into public.reading default values; select name from public.timeline'`,
  );
  await db.query(
    `do $$ begin execute format('alter database %I set search_path = public, pg_catalog', current_database()); end $$`,
  );
  const app = await zone.startApp();
  const { hostname: host, port } = new URL(app.url);
  const resolve = async () => [{ host, port: Number(port) }];
  const { serverUuid } = await agent(t, [], { resolve });
  const status = async () => (await app.get<{ status: string }>(`/servers/${serverUuid}`)).body?.status;
  await until(async () => (await status()) === 'running', 'the server to be running');
  const params = { script: '#!/bin/sh\n' };
  const made = await app.post<{ id: string }>(`/servers/${serverUuid}/tasks`, { task: 'command_execute', params });
  await app.get(`/tasks/${made.body.id}/wait`);
  await db.transaction(async (connection) => {
    await connection.query('set local session_replication_role = replica');
    await connection.query(
      `update cnapi_tasks set state = 'claimed', outcome = null, result = null, error = null, ended_at = null where id = $1`,
      [made.body.id],
    );
  });
  await until(async () => (await db.query('select 1 from reading')).rows.length > 0, 'the first timeline to be read');
  await db.query(`update timeline set name = '00000002'`);
  matchLists(t, (await app.get(`/tasks/${made.body.id}/wait?timeout=60`)).body, {
    status: 'failure',
    history: [{ event: { error: { code: 'OutcomeUnknown' } } }, { name: 'finish' }],
  });
  const { body: history } = await app.get<{ status: string }[]>(`/servers/${serverUuid}/status-history`);
  t.notOk(history.some((change) => change.status === 'unknown'));
});

t.test('a passing error ends nothing, and a database without timelines is not asked again', async (t) => {
  let [code, asked] = ['22012', 0];
  const { clock, said, watch } = start(() => {
    asked += 1;
    throw Object.assign(new Error('refused'), { code });
  });
  for (let each = 0; each < 4; each++) await clock.advance(5_000);
  t.ok(asked > 2, 'it continues');
  code = '42501';
  await clock.advance(5_000);
  const before = asked;
  for (let each = 0; each < 4; each++) await clock.advance(5_000);
  t.equal(asked, before);
  t.match(said.at(-1), /timeline cannot be read/);
  await watch.stop();
});
