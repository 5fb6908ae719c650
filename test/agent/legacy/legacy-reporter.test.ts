import t, { type Test } from 'tap';
import type { AgentDeps } from '../../../lib/agent/agent.ts';
import { LegacyCnapiClient } from '../../../lib/agent/legacy/legacy-cnapi-client.ts';
import { backoffMs, LegacyReporter } from '../../../lib/agent/legacy/legacy-reporter.ts';
import { openCredentials } from '../../../lib/agent/link/credentials.ts';
import { createResolver } from '../../../lib/agent/link/discovery.ts';
import type { Endpoint } from '../../../lib/agent/link/endpoints.ts';
import { SimulatedMachine } from '../../../lib/agent/simulated/simulated-machine.ts';
import { parseConfig } from '../../../lib/control/config.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { startNameServer } from '../../platform/dns/support.ts';
import { FakeLegacyCnapi, type FakeLegacyCnapiScript } from '../../support/fake-legacy-cnapi.ts';
import { matchLists } from '../../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import type { ScriptedInstance } from '../../support/scripted-instance.ts';
import { until } from '../../support/until.ts';
import { payload, uuidOf, VmMachine } from '../../support/vm-rig.ts';
import { agent, instance } from '../agent-rig.ts';

async function legacyCnapi(t: Test, script: FakeLegacyCnapiScript = {}, port = 0): Promise<FakeLegacyCnapi> {
  const cnapi = await FakeLegacyCnapi.start(script, port);
  t.teardown(() => cnapi.stop());
  return cnapi;
}

/** An agent whose name resolves to all of these, which may change. */
async function agentOf(t: Test, behindName: { address: Endpoint }[], fields: Partial<AgentDeps> = {}) {
  return agent(t, [], { resolve: async () => behindName.map(({ address }) => ({ ...address })), ...fields });
}

/**
 * A clock whose timers take a hundredth of their time, so that the next attempt at a link is near.
 */
const hastyClock = { ...clock, after: (ms: number, callback: () => void) => clock.after(ms / 100, callback) };

t.setTimeout(FILE_TIMEOUT_MS);

const beatsOf = (cnapi: FakeLegacyCnapi) => cnapi.all('/events/heartbeat');

for (const hangsUpOnUpgrades of [false, true]) {
  const how = hangsUpOnUpgrades ? 'hangs up on upgrades' : 'answers upgrades with 404';
  t.test(`with only a legacy CNAPI that ${how}, an agent uses the legacy protocol`, async (t) => {
    const cnapi = await legacyCnapi(t, { hangsUpOnUpgrades });
    const { agent: made, serverUuid } = await agentOf(t, [cnapi]);
    await until(() => beatsOf(cnapi).length >= 2 && cnapi.all('/events/status').length >= 1, 'two heartbeats');
    const [sysinfo, agents] = [cnapi.all('/sysinfo'), cnapi.all('')];
    matchLists(t, sysinfo, [{ serverUuid, body: { sysinfo: { UUID: serverUuid } } }]);
    matchLists(t, agents, [{ body: { agents: [{ name: 'cn-agent', version: /^\d+\.\d+\.\d+$/ }] } }]);
    t.equal(cnapi.asked[0]?.path, '/sysinfo', 'the server is registered before anything else is posted');
    matchLists(t, cnapi.all('/events/status')[0], { body: { vms: {}, meminfo: { total_bytes: Number } } });
    const [first, second] = beatsOf(cnapi).map(({ at }) => at);
    // Five seconds by the agent's clock; each heartbeat may arrive late.
    t.ok(second && first && second - first >= 3000, 'heartbeats keep their period');
    const userAgent = new RegExp(`^cn-agent/1.0.0 \\(node/\\S+\\) server/${serverUuid}$`);
    for (const beat of beatsOf(cnapi)) matchLists(t, beat, { body: {}, userAgent });
    t.equal(cnapi.statusOf(serverUuid), 'running');
    t.ok(made.isLegacyCnapi && !made.link.isLive);
  });
}

t.test('a refused sysinfo is retried and delays nothing else', async (t) => {
  const cnapi = await legacyCnapi(t, { refuse: { path: /^\/sysinfo$/, status: 500 } });
  await agentOf(t, [cnapi]);
  await until(() => beatsOf(cnapi).length >= 1 && cnapi.all('/sysinfo').length >= 3, 'heartbeats meanwhile');
  delete cnapi.script.refuse;
  await until(() => cnapi.all('').length === 1, 'the agents to be posted, after the sysinfo');
});

t.test('an unanswered post of sysinfo or agents does not delay the first heartbeat', async (t) => {
  for (const hang of [/^\/sysinfo$/, /^$/]) {
    const cnapi = await legacyCnapi(t, { hang });
    const { agent: made } = await agentOf(t, [cnapi]);
    await until(() => beatsOf(cnapi).length > 0, 'a heartbeat');
    t.equal(cnapi.asked[0]?.path, '/sysinfo', 'the sysinfo is posted first');
    t.equal(cnapi.unanswered, 1, 'its request is still open');
    await made.stop();
  }
});

t.test('a heartbeat reaches a third CNAPI before the one before it has expired', async (t) => {
  const withinMs: (number | undefined)[] = [];
  const pausesMs: number[] = [];
  const post: LegacyCnapiClient['post'] = async (path, _body, _signal, ms) => {
    if (path === '/events/heartbeat') withinMs.push(ms);
    return 200;
  };
  const quick = {
    ...clock,
    sleep(ms: number, signal?: AbortSignal) {
      pausesMs.push(ms);
      return clock.sleep(1, signal);
    },
  };
  const [serverUuid, agentVersion] = [random.uuid(), '1'];
  const machine = new SimulatedMachine({ clock, random, serverUuid, number: 1, agentVersion, sysinfoSize: 'small' });
  const scheme = new LegacyReporter({ clock: quick, random, log: silentLogger, machine, cnapi: { post }, serverUuid });
  t.teardown(() => scheme.stop());
  scheme.start();
  await until(() => withinMs.length > 1, 'heartbeats');
  const pauseMs = 5_000;
  t.ok(pausesMs.includes(pauseMs), 'the pause between two heartbeats');
  const { legacyHeartbeatLifetimeMs } = parseConfig({ databaseUrl: 'postgres://x/y' });
  t.ok(pauseMs + 2 * (withinMs[0] ?? Number.NaN) < legacyHeartbeatLifetimeMs, `${withinMs[0]} ms for each address`);
});

t.test('a heartbeat that one CNAPI does not answer in time is posted to another', async (t) => {
  const [hanging, other] = [await legacyCnapi(t, { hang: /heartbeat/ }), await legacyCnapi(t)];
  const behindName = [hanging];
  const client = new LegacyCnapiClient({
    clock,
    random,
    serverUuid: random.uuid(),
    agentVersion: 'test',
    resolve: async () => behindName.map(({ address }) => ({ ...address })),
    credentials: openCredentials({ tls: false }, silentLogger),
    found: () => undefined,
  });
  const { signal } = new AbortController();
  await t.rejects(client.post('/events/heartbeat', {}, signal, 20), /no answer within 20 ms/);
  behindName.push(other);
  t.ok((await client.post('/events/heartbeat', {}, signal, 2_000)) < 300);
  t.equal(beatsOf(other).length, 1);
});

t.test('an agent posts its sysinfo again to a CNAPI that has forgotten the server', async (t) => {
  const posts: string[] = [];
  let at = 0;
  const answers: Record<string, number> = {};
  const post = async (path: string) => {
    posts.push(path);
    return answers[path] ?? 204;
  };
  const [serverUuid, agentVersion] = [random.uuid(), '1'];
  const machine = new SimulatedMachine({ clock, random, serverUuid, number: 1, agentVersion, sysinfoSize: 'small' });
  const quick = {
    ...clock,
    now: () => at,
    sleep: (ms: number, signal?: AbortSignal) => clock.sleep(ms < 6000 ? 5 : 1e6, signal),
  };
  const scheme = new LegacyReporter({ clock: quick, random, log: silentLogger, machine, cnapi: { post }, serverUuid });
  const count = (path: string) => posts.filter((one) => one === path).length;
  t.teardown(() => scheme.stop());
  scheme.start();
  await until(() => count('/events/heartbeat') > 3, 'heartbeats');
  answers['/events/heartbeat'] = 404;
  await until(() => count('/events/heartbeat') > 20, 'more of them');
  t.equal(count('/sysinfo'), 1, 'not so soon after it was accepted');
  at = 30_000;
  await until(() => count('/sysinfo') === 2, 'its sysinfo again');
  await until(() => count('') === 2, 'the agents again');
  await scheme.stop();
  const asked = posts.length;
  await new Promise((done) => setTimeout(done, 50));
  t.equal(posts.length, asked, 'after stop it posts nothing');
});

t.test('the pauses between retries grow to two minutes, with a fifth of jitter', async (t) => {
  t.same(
    [1, 2, 3].map((failures) => Math.round(backoffMs(failures, 0.5))),
    [500, 800, 1280],
  );
  t.same([backoffMs(1, 0), Math.round(backoffMs(1, 1))], [400, 600]);
  t.equal(Math.round(backoffMs(1000, 0.5)), 120_000);
});

t.test('heartbeats stay with the address that answered while DNS names it, then move to another', async (t) => {
  const [one, two] = [await legacyCnapi(t), await legacyCnapi(t)];
  const behindName = [one, two];
  const quick = { ...clock, sleep: (ms: number, signal?: AbortSignal) => clock.sleep(ms / 50, signal) };
  await agentOf(t, behindName, { protocol: 'legacy', clock: quick });
  // Where a post is not answered in time, as on a busy machine, the agent moves to the next address
  // and stays there.
  const lead = () => beatsOf(one).length - beatsOf(two).length;
  await until(() => Math.abs(lead()) >= 5, 'heartbeats to one of them');
  const [chosen, other] = lead() > 0 ? [one, two] : [two, one];
  const atFirst = beatsOf(other).length;
  behindName.splice(behindName.indexOf(chosen), 1);
  await until(() => beatsOf(other).length >= atFirst + 2, 'heartbeats to the one that is left');
  behindName.push(chosen);
  await other.stop();
  const before = beatsOf(chosen).length;
  await until(() => beatsOf(chosen).length > before, 'heartbeats to the one that answers');
});

t.test('with new instances behind the same name, agents never post to the legacy CNAPI', async (t) => {
  const [old, one, two] = [await legacyCnapi(t), await instance(t), await instance(t)];
  const named = [old, one, two].map(({ address }) => ({ uuid: random.uuid(), ...address }));
  const { port } = await startNameServer(t, named);
  const discovery = { dns: `127.0.0.1:${port}`, datacenter: 'local', domain: 'cnapi.internal' };
  const resolve = createResolver(discovery, { clock, random });
  const agents = await Promise.all(Array.from({ length: 12 }, () => agentOf(t, [], { resolve })));
  await until(() => agents.every(({ agent: made }) => made.link.isLive), 'all their sessions');
  t.ok(old.upgrades > 0, 'some agents tried it');
  await new Promise((done) => setTimeout(done, 500));
  t.same(old.asked, []);
  t.equal(one.sessions.length + two.sessions.length, 12, 'each agent had one session');
});

t.test('an agent follows a CNAPI that is upgraded and then rolled back in place', async (t) => {
  const before = await legacyCnapi(t);
  const { port } = before.address;
  const { agent: made, serverUuid } = await agentOf(t, [{ address: { host: '127.0.0.1', port } }], {
    clock: hastyClock,
  });
  await until(() => beatsOf(before).length > 0, 'a heartbeat');
  await before.stop();
  const upgraded = await instance(t, {}, port);
  const session = await upgraded.session(0);
  t.equal(session.serverUuid, serverUuid);
  await session.received('inventory');
  await until(() => !made.isLegacyCnapi, 'the end of the legacy protocol');
  await upgraded.stop();
  const after = await legacyCnapi(t, {}, port);
  await until(() => beatsOf(after).length > 0 && after.all('/sysinfo').length > 0, 'the legacy protocol again');
  t.ok(made.isLegacyCnapi && !made.link.isLive);
});

t.test('an agent connects to a new instance behind the name before its next scheduled attempt', async (t) => {
  const old = await legacyCnapi(t);
  const behindName: (FakeLegacyCnapi | ScriptedInstance)[] = [old];
  const { agent: made } = await agentOf(t, behindName);
  await until(() => beatsOf(old).length > 0, 'a heartbeat');
  const fresh = await instance(t, {
    greet: () => {
      t.ok(made.isLegacyCnapi, 'heartbeats continue until the welcome');
      return {};
    },
  });
  behindName.push(fresh);
  await (await fresh.session(0)).received('inventory');
  await until(() => !made.isLegacyCnapi, 'the end of the legacy protocol');
});

t.test('an agent restricted to one protocol uses no other', async (t) => {
  const old = await legacyCnapi(t);
  const linked = await agentOf(t, [old], { protocol: 'link', random: { ...random, fraction: () => 0 } });
  await agentOf(t, [old], { protocol: 'legacy', dial: () => t.fail('it attempts no link') as never });
  await until(() => old.upgrades > 5, 'several attempts at a link');
  await until(() => beatsOf(old).length > 0, 'posts');
  t.notOk(old.asked.some(({ serverUuid }) => serverUuid === linked.serverUuid));
  t.notOk(linked.agent.isLegacyCnapi);
});

t.test('a legacy CNAPI is told of the VMs', async (t) => {
  const [serverUuid, agentVersion] = [random.uuid(), '1'];
  const machine = new SimulatedMachine({ clock, random, serverUuid, number: 1, agentVersion, sysinfoSize: 'small' });
  const vms = await new VmMachine(t).agent();
  await vms.create(payload(1));
  const bodies: unknown[] = [];
  const post = async (path: string, body: unknown) => {
    if (path === '/events/status') bodies.push(body);
    return 204;
  };
  const scheme = new LegacyReporter({ clock, random, log: silentLogger, machine, vms, cnapi: { post }, serverUuid });
  t.teardown(() => scheme.stop());
  scheme.start();
  await until(() => bodies.length > 0, 'a status');
  t.match(bodies[0], { vms: { [uuidOf(1)]: { state: 'running' } } });
});
