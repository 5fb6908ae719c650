/**
 * Agents that connect to a real, busy instance: some are admitted, the others are told when to
 * return, and none is lost.
 */
import t from 'tap';
import { MIN_RATE } from '../../../lib/control/roster/accept/admission.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { freshZone, type TestApp, type TestZone } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import { joinAgent, newMachine, ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

const AGENTS = 60;

t.test('a busy instance admits agents slowly and keeps those that it has', async (t) => {
  const zone = await freshZone(t);
  const loop = { share: 1 };
  const app = await zone.startApp({}, { eventLoop: { busyShare: () => loop.share } });
  const first = await joinAgent(app.url, newMachine());
  await until(async () => (await metric(app, 'link_admission_rate')) === MIN_RATE, 'the rate to fall to the minimum');

  const refusedBefore = await metric(app, 'link_upgrades_refused_total');
  const agents = Array.from({ length: AGENTS }, () => new ScriptedAgent(app.url, newMachine()));
  await Promise.all(agents.map((agent) => agent.open()));
  const refused = agents.filter(({ refusedWith }) => refusedWith === 503);
  t.ok(refused.length > 0, `${refused.length} are refused`);
  t.ok(refused.length < AGENTS, 'some are admitted');
  t.ok(
    refused.every(({ retryAfterSeconds = 0 }) => retryAfterSeconds >= 1),
    'each is told when to return',
  );
  t.equal((await metric(app, 'link_upgrades_refused_total')) - refusedBefore, refused.length);
  t.equal(first.agent.closed, undefined, 'the agent that was connected stays');
  matchLists(t, (await app.get('/instances')).body, [{ admission: /open|paced/ }]);
  await until(
    async () => ((await app.get<{ admission: string }[]>('/instances')).body[0]?.admission ?? '') === 'paced',
  );
  await until(async () => (await metric(app, 'zone_at_capacity')) === 1, 'all instances to refuse agents');

  loop.share = 0;
  const joined = await Promise.all(refused.map(({ machine }) => joinWhenTold(app, machine)));
  t.equal(joined.length, refused.length, 'once the instance is no longer busy, all agents are admitted');
  t.equal(first.agent.closed, undefined);
  for (const agent of [first.agent, ...agents, ...joined]) agent.close();
});

t.test('servers of a dead instance stay running until the agents that were told to return have', async (t) => {
  const zone = await freshZone(t);
  const loop = { share: 1 };
  const app = await zone.startApp({}, { eventLoop: { busyShare: () => loop.share } });
  await until(async () => (await metric(app, 'link_admission_rate')) === MIN_RATE, 'the rate to fall to the minimum');
  const agents = Array.from({ length: 2 * AGENTS }, () => new ScriptedAgent(app.url, newMachine()));
  await Promise.all(agents.map((agent) => agent.open()));
  const toldAt = systemClock.now();
  const longestS = Math.max(...agents.map(({ retryAfterSeconds = 0 }) => retryAfterSeconds));
  t.ok(longestS >= 4, `agents were told to return within ${longestS} s`);
  // From here on the instance admits everybody; the grace of these tests is 0.5 s.
  loop.share = 0;
  const readRow = await deadRow(zone);
  await until(async () => (await metric(app, 'roster_rows_awaiting_returns')) === 1, 'the row to wait for the agents');
  await until(async () => (await readRow())?.reason === 'instance-lost', 'the row to be unknown');
  const tookMs = systemClock.now() - toldAt;
  t.ok(tookMs > (longestS - 1) * 1_000, `after ${Math.round(tookMs)} ms`);
  await until(async () => (await metric(app, 'roster_rows_awaiting_returns')) === 0, 'no row to wait any more');
  for (const agent of agents) agent.close();
});

t.test('servers of a dead instance wait for agents that another dead instance told to return', async (t) => {
  const zone = await freshZone(t);
  const full = await zone.startApp({ maxAgents: 1 });
  const { agent } = await joinAgent(full.url, newMachine());
  const other = await zone.startApp();
  const agents = Array.from({ length: 4 * AGENTS }, () => new ScriptedAgent(full.url, newMachine()));
  await Promise.all(agents.map((each) => each.open()));
  const toldAt = systemClock.now();
  await full.stop();
  agent.close();
  const readRow = await deadRow(zone);
  await until(async () => (await readRow())?.reason === 'instance-lost', 'the row to be unknown');
  const tookMs = systemClock.now() - toldAt;
  // The last of 240 agents was told to return after 2.4 s, and the grace is 0.5 s.
  t.ok(tookMs > 2_000, `after ${Math.round(tookMs)} ms`);
  await until(async () => (await metric(other, 'roster_rows_awaiting_returns')) === 0, 'no row to wait any more');
  for (const each of agents) each.close();
});

t.test('a full instance that told no agent to return does not lengthen the grace', async (t) => {
  const zone = await freshZone(t);
  const full = await zone.startApp({ maxAgents: 1 });
  const { agent } = await joinAgent(full.url, newMachine());
  await until(async () => (await metric(full, 'zone_at_capacity')) === 1, 'the instance to be full');
  const row = await deadRow(zone);
  await until(async () => (await row())?.reason === 'instance-lost', 'the usual grace to pass');
  t.equal(await metric(full, 'zone_at_capacity'), 1, 'it is still full');
  agent.close();
});

t.test('in a trusted network, nobody uses up what the agent of a server at another address may do', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp({
    access: 'tokens',
    trustedNetworks: { '127.0.0.0/8': ['agent'] },
  });
  const machine = newMachine();
  const knock = async (localAddress: string) => {
    const agent = await new ScriptedAgent(app.url, machine, undefined, { localAddress }).open();
    t.teardown(() => agent.close());
    return agent.refusedWith;
  };
  t.same([await knock('127.0.0.2'), await knock('127.0.0.2')], [undefined, undefined]);
  t.equal(await knock('127.0.0.2'), 503, 'too many that have not begun their session');
  t.equal(await knock('127.0.0.3'), undefined);
});

/** A server of a dead instance; returns what reads its row. */
async function deadRow({ database }: TestZone) {
  const { serverUuid } = newMachine();
  await database.query(
    `with dead as (
       insert into cnapi_instances (run, cnapi_uuid, url, host, port, pid, version, state, ended_at, end_reason)
       values (gen_random_uuid(), gen_random_uuid(), 'http://127.0.0.1:1', '127.0.0.1', 1, 1, 'test', 'dead', cnapi_now(), 'lapsed')
       returning run, cnapi_uuid)
     insert into cnapi_roster_authority (server_uuid, cnapi_uuid, run, epoch, status, reason, since)
     select $1::uuid, cnapi_uuid, run, 1, 'running', 'connected', cnapi_now() from dead`,
    [serverUuid],
  );
  const text = 'select status, reason from cnapi_roster_authority where server_uuid = $1::uuid';
  return async () => (await database.query<{ status: string; reason: string }>(text, [serverUuid])).rows[0];
}

/** Behaves like an agent that obeys Retry-After. */
async function joinWhenTold(app: TestApp, machine: ReturnType<typeof newMachine>): Promise<ScriptedAgent> {
  for (;;) {
    const agent = await new ScriptedAgent(app.url, machine).open();
    if (agent.refusedWith === undefined) {
      agent.hello();
      await agent.next('welcome');
      return agent;
    }
    await systemClock.sleep(1_000 * (agent.retryAfterSeconds ?? 1));
  }
}

async function metric({ url }: TestApp, name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(new RegExp(`^cnapi_${name}(?:{.*})? (.*)$`, 'm').exec(text)?.[1]);
}
