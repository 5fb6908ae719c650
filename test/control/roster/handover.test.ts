/**
 * What the roster's drivers do when runs end: whole instances in one process, real Postgres, short
 * graces.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import t from 'tap';
import { freshZone, type TestZone } from '../../support/apps.ts';
import { joinAgent, newMachine } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

interface Row {
  run: string;
  epoch: number;
  status: string;
  reason: string;
}

async function rowOf(zone: TestZone, serverUuid: string): Promise<Row> {
  const { rows } = await zone.database.query<Row>(
    'select run, epoch, status, reason from cnapi_roster_authority where server_uuid = $1',
    [serverUuid],
  );
  return rows[0] as Row;
}

t.test('an instance declared dead continues under a new run, and its agents notice nothing', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const machine = newMachine();
  const { agent } = await joinAgent(app.url, machine);
  const before = await rowOf(zone, machine.serverUuid);
  await zone.database.query(`update cnapi_instances set state = 'dead' where run = $1`, [before.run]);
  await until(async () => (await rowOf(zone, machine.serverUuid)).run !== before.run);
  const after = await rowOf(zone, machine.serverUuid);
  t.match(after, { epoch: before.epoch, status: 'running' });
  t.equal(agent.closed, undefined);
  t.same(
    agent.frames.map((frame) => frame.type).filter((type) => type !== 'heartbeat'),
    ['welcome'],
  );
  const { body } = await app.get<{ run: string }[]>('/instances');
  t.same(
    body.map(({ run }) => run),
    [after.run],
  );
  agent.close();
  await until(async () => (await rowOf(zone, machine.serverUuid)).status === 'unknown');
});

t.test('a locked row does not keep other sessions from following their instance to a new run', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp({ ownerlessGraceMs: 600_000 });
  const [free, inUse] = [newMachine(), newMachine()];
  const agents = [await joinAgent(app.url, free), await joinAgent(app.url, inUse)];
  const { run } = await rowOf(zone, free.serverUuid);
  const holder = new pg.Client({ connectionString: zone.url });
  await holder.connect();
  t.teardown(() => holder.end());
  await holder.query('begin');
  await holder.query('select 1 from cnapi_roster_authority where server_uuid = $1 for update', [inUse.serverUuid]);
  await zone.database.query(`update cnapi_instances set state = 'dead' where run = $1`, [run]);
  await until(async () => (await rowOf(zone, free.serverUuid)).run !== run, 'the other session to follow the new run');
  t.equal((await rowOf(zone, inUse.serverUuid)).run, run);
  await holder.query('commit');
  await until(async () => (await rowOf(zone, inUse.serverUuid)).run !== run, 'this session to follow as well');
  for (const { agent } of agents) t.equal(agent.closed, undefined);
  t.match(await rowOf(zone, inUse.serverUuid), {
    ...(await rowOf(zone, free.serverUuid)),
    epoch: 1,
    status: 'running',
  });
});

t.test('rows of a dead run become unknown after the grace, through any live instance', async (t) => {
  const zone = await freshZone(t);
  const [dead, alive] = [await zone.startApp(), await zone.startApp()];
  const machine = newMachine();
  await joinAgent(dead.url, machine);
  await dead.stop();
  t.match(await rowOf(zone, machine.serverUuid), { status: 'running' }, 'a stopping instance writes no session losses');
  await until(async () => (await rowOf(zone, machine.serverUuid)).status === 'unknown');
  t.match(await rowOf(zone, machine.serverUuid), { reason: 'instance-lost', epoch: 1 });
  const { body } = await alive.get<{ cnapi_uuid: string }[]>(`/servers/${machine.serverUuid}/status-history`);
  t.equal(body[0]?.cnapi_uuid, alive.cnapiUuid);
});

t.test('a row of this instance without a session of its own becomes unknown too', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const { body } = await app.get<{ run: string }[]>('/instances');
  const serverUuid = randomUUID();
  await zone.database.query(
    `insert into cnapi_roster_authority (server_uuid, cnapi_uuid, run, epoch, status, reason, since)
     values ($1, $2, $3, 5, 'running', 'connected', now())`,
    [serverUuid, app.cnapiUuid, body[0]?.run],
  );
  await until(async () => (await rowOf(zone, serverUuid)).status === 'unknown');
  t.match(await rowOf(zone, serverUuid), { reason: 'session-lost', epoch: 5 });
});

t.test("until its start grace is over, an instance changes the status of its own runs' rows only", async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp({ startGraceMs: 3_600_000 });
  const { body } = await app.get<{ run: string }[]>('/instances');
  const addRow = async (run: string | undefined) => {
    const serverUuid = randomUUID();
    await zone.database.query(
      `insert into cnapi_roster_authority (server_uuid, cnapi_uuid, run, epoch, status, reason, since)
       values ($1, $2, $3, 5, 'running', 'connected', now())`,
      [serverUuid, app.cnapiUuid, run],
    );
    return serverUuid;
  };
  const ofDeadRun = await addRow(randomUUID());
  // Later rows are checked in the same polls, so the row of the dead run was due by then as well.
  const own = await addRow(body[0]?.run);
  await until(async () => (await rowOf(zone, own)).status === 'unknown');
  t.match(await rowOf(zone, ofDeadRun), { status: 'running' });
});

t.test('the slow poll closes a session whose row moved to another instance unnoticed', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const machine = newMachine();
  const { agent } = await joinAgent(app.url, machine);
  await zone.database.query('update cnapi_roster_authority set epoch = epoch + 1 where server_uuid = $1', [
    machine.serverUuid,
  ]);
  t.match(await agent.end(), { reason: /roster/ });
});

t.test('an instance whose lease lapses is declared dead by another, which takes over its agents', async (t) => {
  const zone = await freshZone(t);
  const [app] = [await zone.startApp({ leaseMs: 3000 })];
  const run = randomUUID();
  await zone.database.query(
    `insert into cnapi_instances (run, cnapi_uuid, url, host, port, pid, version)
     values ($1, $2, 'http://127.0.0.1:1', '127.0.0.1', 1, 1, '0')`,
    [run, randomUUID()],
  );
  const state = async () =>
    (
      await zone.database.query<{ state: string; end_reason: string }>(
        'select state, end_reason from cnapi_instances where run = $1',
        [run],
      )
    ).rows[0];
  await until(async () => (await app.get<{ run: string }[]>('/instances')).body.some((one) => one.run === run));
  await until(async () => (await state())?.state === 'dead');
  t.match(await state(), { end_reason: 'lapsed' });
});
