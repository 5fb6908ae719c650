import { randomUUID } from 'node:crypto';
import pg from 'pg';
import t from 'tap';
import { App } from '../../../lib/control/app.ts';
import { parseConfig } from '../../../lib/control/config.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import type { InstanceFrame } from '../../../lib/protocol/link/frames.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import { joinAgent, newMachine, ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';
import { raw } from '../http/support.ts';

interface StatusChange {
  status: string;
  reason: string;
  epoch: number;
}

t.test('the link of an agent', async (t) => {
  const zone = await freshZone(t);
  const [a, b] = [await zone.startApp(), await zone.startApp()];

  const history = async (app: TestApp, serverUuid: string) =>
    (await app.get<StatusChange[]>(`/servers/${serverUuid}/status-history`)).body;
  const reads = (app: TestApp, serverUuid: string, status: string, reason: string) =>
    until(async () => {
      const [newest] = await history(app, serverUuid);
      return newest?.status === status && newest.reason === reason;
    });

  t.test('an accepted agent is running on every instance, under epoch 1, and is asked for its sysinfo', async (t) => {
    const machine = newMachine();
    const { agent, epoch } = await joinAgent(a.url, machine);
    t.equal(epoch, 1);
    t.match(await agent.next('welcome'), { cnapiUuid: a.cnapiUuid, sendSysinfo: true, heartbeatMs: 1000 });
    await until(async () => (await b.get(`/servers/${machine.serverUuid}`)).status === 200);
    t.match((await b.get(`/servers/${machine.serverUuid}`)).body, { status: 'running', hostname: 'scripted' });
    const again = await joinAgent(a.url, machine, { conn: 2, epoch: 1, sysinfoDigest: 'one' });
    t.match(await again.agent.next('welcome'), { sendSysinfo: false, epoch: 2 });
    again.agent.close();
  });

  t.test('a heartbeat is answered with its sequence number', async (t) => {
    const { agent } = await joinAgent(a.url, newMachine());
    agent.send({ type: 'heartbeat', sequence: 4711 });
    await until(() => agent.frames.some((frame) => frame.type === 'heartbeat' && frame.sequence === 4711));
    t.pass();
    agent.close();
  });

  t.test('answers to heartbeats keep their order among other frames', async (t) => {
    const { agent } = await joinAgent(a.url, newMachine());
    const isAnswer = (frame: InstanceFrame) =>
      frame.type === 'error' || (frame.type === 'heartbeat' && frame.sequence >= 1_000_000);
    const pairs = 1_000;
    for (let sequence = 1_000_000; sequence < 1_000_000 + pairs; sequence += 1) {
      agent.send({ type: 'heartbeat', sequence });
      agent.send({ type: `no-such-${sequence}` });
    }
    await until(() => agent.frames.filter(isAnswer).length === 2 * pairs);
    const said = agent.frames.filter(isAnswer).map((frame) => JSON.stringify(frame));
    const isMisplaced = (text: string, at: number) => !text.includes(String(1_000_000 + Math.floor(at / 2)));
    t.equal(said.find(isMisplaced), undefined);
    agent.close();
    await agent.end();
  });

  t.test('an agent that moves never leaves running, and its old instance closes the old session', async (t) => {
    const machine = newMachine();
    const { agent: old } = await joinAgent(a.url, machine);
    const { agent: moved, epoch } = await joinAgent(b.url, machine, { conn: 2, epoch: 1 });
    t.equal(epoch, 2);
    t.match(await old.end(), { code: 1000, reason: /roster/ });
    matchLists(t, await history(a, machine.serverUuid), [{ status: 'running', epoch: 1 }]);
    t.equal((await history(a, machine.serverUuid)).length, 1);
    moved.close();
  });

  t.test('a server is unknown at once after its connection closes, as the other instance shows', async (t) => {
    const machine = newMachine();
    const { agent } = await joinAgent(a.url, machine);
    agent.close();
    await reads(b, machine.serverUuid, 'unknown', 'closed');
    t.pass();
  });

  t.test('a silent agent becomes unknown, and its socket is closed', async (t) => {
    const machine = newMachine();
    const { agent } = await joinAgent(a.url, machine);
    agent.fallSilent();
    await reads(b, machine.serverUuid, 'unknown', 'silent');
    agent.socket.resume();
    t.match(await agent.end(), { reason: /silent/ });
  });

  t.test('a conn that is not the latest is superseded and told the latest one', async (t) => {
    const machine = newMachine();
    const { agent } = await joinAgent(a.url, machine, { conn: 7 });
    const late = await new ScriptedAgent(b.url, machine).open();
    late.hello({ conn: 6, epoch: 1 });
    t.match(await late.next('refuse'), { code: 'superseded', conn: 7 });
    await late.end();
    agent.close();
  });

  t.test('another incarnation is refused while the first one answers, on either instance', async (t) => {
    const machine = newMachine();
    const { agent: first } = await joinAgent(a.url, machine);
    for (const app of [a, b]) {
      const twin = await new ScriptedAgent(app.url, {
        ...machine,
        incarnation: randomUUID(),
        journalId: randomUUID(),
      }).open();
      twin.hello();
      t.match(await twin.next('refuse'), { code: 'incarnation-alive' });
    }
    t.equal(first.closed, undefined);
    first.close();
  });

  t.test('another incarnation takes over from one that does not answer', async (t) => {
    const machine = newMachine();
    const { agent: first } = await joinAgent(a.url, machine);
    first.fallSilent();
    const { epoch } = await joinAgent(b.url, { ...machine, incarnation: randomUUID(), journalId: randomUUID() });
    t.ok(epoch >= 2);
    first.socket.terminate();
  });

  const inventoried = (serverUuid: string, epoch: number) =>
    until(async () => {
      const { rows } = await zone.database.query<{ inventory_epoch: number }>(
        'select inventory_epoch from cnapi_roster_authority where server_uuid = $1',
        [serverUuid],
      );
      return rows[0]?.inventory_epoch === epoch;
    });

  t.test('a rolled back journal is refused, and a new one is accepted', async (t) => {
    const machine = newMachine();
    const { agent } = await joinAgent(a.url, machine);
    await inventoried(machine.serverUuid, 1);
    const copy = await new ScriptedAgent(a.url, machine).open();
    copy.hello({ conn: 2, epoch: 0 });
    t.match(await copy.next('refuse'), { code: 'stale-journal' });
    const { epoch } = await joinAgent(a.url, machine, { conn: 3, epoch: 0, journalId: randomUUID() });
    t.equal(epoch, 2);
    agent.close();
  });

  t.test('an older journal is refused after a new one replaced it, unless its agent is live', async (t) => {
    const machine = newMachine();
    await joinAgent(a.url, machine);
    await inventoried(machine.serverUuid, 1);
    const { agent: anew } = await joinAgent(a.url, { ...machine, journalId: randomUUID() }, { conn: 2 });
    await inventoried(machine.serverUuid, 2);
    const answers = async (fields: object, conn: number) => {
      const restored = await new ScriptedAgent(b.url, { ...machine, ...fields }).open();
      restored.hello({ conn, epoch: 1 });
      return restored.next('refuse');
    };
    const twin = { incarnation: randomUUID() };
    t.match(await answers({}, 3), { code: 'stale-journal' });
    t.match(await answers(twin, 1), { code: 'incarnation-alive' });
    anew.fallSilent();
    t.match(await answers(twin, 2), { code: 'stale-journal' });
    anew.socket.terminate();
  });

  t.test('without an inventory the session is closed and its server unknown', async (t) => {
    const machine = newMachine();
    const agent = await new ScriptedAgent(a.url, machine).open();
    agent.hello();
    await agent.next('welcome');
    agent.beat();
    await reads(a, machine.serverUuid, 'unknown', 'no-inventory');
    t.ok(await agent.end());
  });

  const disorders: { name: string; frames: object[]; join?: boolean; reason: RegExp }[] = [
    {
      name: 'a frame before the hello',
      frames: [{ type: 'inventory', epoch: 1, tasks: [] }],
      reason: /inventory frame has no place/,
    },
    { name: 'a second hello', join: true, frames: [{ type: 'hello' }], reason: /hello/ },
    {
      name: 'an inventory of another epoch',
      join: true,
      frames: [{ type: 'inventory', epoch: 9, tasks: [] }],
      reason: /no place/,
    },
    { name: 'a frame with a field missing', join: true, frames: [{ type: 'task_end', id: 'x' }], reason: /task_end/ },
  ];
  for (const { name, frames, join, reason } of disorders) {
    t.test(`${name} ends that session with a reason, and no other`, async (t) => {
      const [machine, bystander] = [newMachine(), await joinAgent(a.url, newMachine())];
      const agent = await new ScriptedAgent(a.url, machine).open();
      if (join) await agent.join();
      for (const frame of frames) agent.send(frame);
      t.match(await agent.end(), { code: 1002, reason });
      if (join) await reads(b, machine.serverUuid, 'unknown', 'protocol-error');
      t.equal(bystander.agent.closed, undefined);
      bystander.agent.close();
    });
  }

  t.test('a hello for another server than the path names is refused', async (t) => {
    const agent = await new ScriptedAgent(a.url, newMachine(), `/agents/${randomUUID()}/link`).open();
    agent.hello();
    t.match(await agent.next('refuse'), { code: 'protocol', message: /serverUuid/ });
  });

  t.test('a hello with a text that no database can store is refused', async (t) => {
    const agent = await new ScriptedAgent(a.url, newMachine()).open();
    agent.hello({ bootId: 'a\0b' });
    t.match(await agent.next('refuse'), { code: 'protocol', message: /^hello contains a NUL/ });
  });

  t.test('a frame of an unknown type is answered with an error, and the session stays', async (t) => {
    const { agent } = await joinAgent(a.url, newMachine());
    agent.send({ type: 'dance' });
    t.match(await agent.next('error'), { code: 'unknown-type', message: /dance/ });
    t.equal(agent.closed, undefined);
    agent.close();
  });

  t.test('a removed server loses its session on any instance, and returns above its epoch', async (t) => {
    const machine = newMachine();
    const { agent } = await joinAgent(a.url, machine);
    await until(async () => (await b.get(`/servers/${machine.serverUuid}`)).status === 200);
    t.equal(await b.delete(`/servers/${machine.serverUuid}`), 200);
    await agent.end();
    matchLists(t, await history(a, machine.serverUuid), [
      { status: 'unknown', reason: 'removed', epoch: 1 },
      { status: 'running' },
    ]);
    t.equal((await joinAgent(a.url, machine, { conn: 2, epoch: 1 })).epoch, 2);
  });
});

t.test('more agents than may be accepted at once are all accepted', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agents = await Promise.all(Array.from({ length: 400 }, () => joinAgent(app.url, newMachine())));
  t.equal(agents.filter(({ epoch }) => epoch >= 1).length, 400);
  for (const { agent } of agents) agent.close();
});

t.test('an instance that is full refuses the upgrade with 503', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp({ maxAgents: 1 });
  await joinAgent(app.url, newMachine());
  const second = new ScriptedAgent(app.url, newMachine());
  await second.end();
  t.equal(second.refusedWith, 503);
});

t.test('an invalid handshake is refused with a code and a message', async (t) => {
  const zone = await freshZone(t);
  const { url } = await zone.startApp();
  const head = `GET /agents/${newMachine().serverUuid}/link HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n`;
  const handshakes = {
    'no key': 'Sec-WebSocket-Version: 13\r\n',
    'a short key': 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n',
    'another version': 'Sec-WebSocket-Version: 12\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n',
  };
  for (const [name, headers] of Object.entries(handshakes)) {
    const seen = await raw(Number(new URL(url).port), `${head}${headers}\r\n`);
    t.match(seen, /^HTTP\/1\.1 400 /, name);
    t.match(JSON.parse(seen.split('\r\n\r\n')[1] ?? ''), { code: 'BadRequest', message: /Sec-WebSocket/ }, name);
  }
});

t.test('an instance that was stopped while an inventory was on its way does not blame the agent', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const machine = newMachine();
  const agent = await new ScriptedAgent(app.url, machine).open();
  agent.hello();
  const { epoch } = await agent.next('welcome');
  agent.send({ type: 'inventory', epoch, tasks: [] });
  await new Promise((resolve) => setImmediate(resolve));
  const end = performance.now() + 2500;
  while (performance.now() < end);
  agent.beat();
  await until(
    async () => (await app.get<StatusChange[]>(`/servers/${machine.serverUuid}/status-history`)).status === 200,
  );
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const { body } = await app.get<StatusChange[]>(`/servers/${machine.serverUuid}/status-history`);
  matchLists(t, body, [{ status: 'running', reason: 'connected' }]);
  t.equal(agent.closed, undefined);
});

t.test('an inventory that the database cannot store in time is stored later, and the session stays', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const machine = newMachine();
  const agent = await new ScriptedAgent(app.url, machine).open();
  agent.hello();
  const { epoch } = await agent.next('welcome');
  const holder = new pg.Client({ connectionString: zone.url });
  await holder.connect();
  await holder.query('begin');
  await holder.query('select 1 from cnapi_roster_authority where server_uuid = $1 for update', [machine.serverUuid]);
  agent.send({ type: 'inventory', epoch, tasks: [] });
  agent.beat();
  await new Promise((resolve) => setTimeout(resolve, 2600));
  await holder.query('commit');
  await holder.end();
  await until(async () => {
    const { rows } = await zone.database.query<{ inventory_epoch: number }>(
      'select inventory_epoch from cnapi_roster_authority where server_uuid = $1',
      [machine.serverUuid],
    );
    return rows[0]?.inventory_epoch === epoch;
  });
  t.equal(agent.closed, undefined);
});

t.test('a sysinfo that the database cannot store in time is stored later, in the same session', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const machine = newMachine();
  const holder = new pg.Client({ connectionString: zone.url });
  await holder.connect();
  await holder.query('begin');
  await holder.query('lock table cnapi_servers in exclusive mode');
  const { agent } = await joinAgent(app.url, machine);
  await new Promise((resolve) => setTimeout(resolve, 2600));
  t.equal((await app.get(`/servers/${machine.serverUuid}`)).status, 404);
  await holder.query('commit');
  await holder.end();
  await until(async () => (await app.get(`/servers/${machine.serverUuid}`)).status === 200);
  t.equal(agent.closed, undefined);
  agent.close();
});

t.test('a flood before the hello is disconnected before it is assembled', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await new ScriptedAgent(app.url, newMachine()).open();
  agent.send({ type: 'hello', padding: 'x'.repeat(7_000_000) });
  t.not((await agent.end()).code, 1000);
  t.equal(
    agent.frames.some((frame) => frame.type === 'welcome'),
    false,
  );
});

t.test('an instance stops in time although its database never answered', async (t) => {
  const port = 1;
  const app = new App({
    config: { ...parseConfig({ databaseUrl: `postgres://x@127.0.0.1:${port}/x`, port: 0 }), cnapiUuid: randomUUID() },
    log: silentLogger,
    clock: systemClock,
    random: systemRandom,
  });
  const started = app.start();
  await new Promise((resolve) => setTimeout(resolve, 300));
  await app.stop();
  await started;
  t.pass();
});
