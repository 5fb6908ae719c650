import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { runControlCommand } from '../../../lib/agent/simulated/control.ts';
import { type FleetDeps, SimulatedAgents, serverUuidOf } from '../../../lib/agent/simulated/fleet.ts';
import { simulatedSysinfo } from '../../../lib/agent/simulated/simulated-sysinfo.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { ALLOWED_WORK } from '../../../lib/protocol/allowed-work.ts';
import { FakeLegacyCnapi } from '../../support/fake-legacy-cnapi.ts';
import { type Script, ScriptedInstance } from '../../support/scripted-instance.ts';
import { until } from '../../support/until.ts';

async function instance(t: Test, script: Script = {}): Promise<ScriptedInstance> {
  const started = await ScriptedInstance.start({ welcome: { heartbeatMs: 1000 }, ...script });
  t.teardown(() => started.stop());
  return started;
}

async function fleetOf(t: Test, agents: number, instances: ScriptedInstance[], fields: Partial<FleetDeps> = {}) {
  const fleet = new SimulatedAgents({
    clock,
    random,
    log: silentLogger,
    resolve: async () => instances.map(({ address }) => address),
    agentVersion: '1.0.0',
    seed: 'test',
    agents,
    agentsPerSecond: 1000,
    sysinfoSize: 'small',
    localAddresses: 0,
    ...fields,
  });
  t.teardown(() => fleet.stop());
  await fleet.start();
  await until(() => fleet.status().live === agents, `${agents} live agents`, 60_000);
  return fleet;
}

t.test('two hundred agents in one process hold sessions, send heartbeats and run tasks', async (t) => {
  const instances = await Promise.all([instance(t), instance(t)]);
  const fleet = await fleetOf(t, 200, instances);
  const sessions = instances.flatMap((one) => one.sessions);
  t.equal(new Set(sessions.map(({ serverUuid }) => serverUuid)).size, 200);
  t.match(fleet.status(), { agents: 200, live: 200, frozen: 0 });
  await until(() => fleet.status().heartbeats >= 400, 'two heartbeats of each');
  t.ok(
    Object.values(fleet.status().instances).every((count) => count > 50),
    'spread over the instances',
  );
  const ends = sessions.map(async (session) => {
    const { epoch } = await session.received('inventory');
    const id = crypto.randomUUID();
    const params = { script: 'echo $1 $X\nexit 3', args: ['hello'], env: { X: session.serverUuid } };
    session.task({ id, epoch, name: 'command_execute', params });
    return { session, end: await session.end(id) };
  });
  for (const { session, end } of await Promise.all(ends)) {
    if (end.result?.stdout !== `hello ${session.serverUuid}\n` || end.result?.exitCode !== 3)
      t.same(end, 'what was asked');
  }
  await until(() => sessions.every((session) => session.all('heartbeat').length >= 3), 'three heartbeats of each');
});

t.test('some agents of a fleet can be legacy agents', async (t) => {
  const [one, cnapi] = [await instance(t), await FakeLegacyCnapi.start()];
  t.teardown(() => cnapi.stop());
  const fleet = await fleetOf(t, 6, [one], {
    agents: 10,
    legacy: 4,
    resolve: async () => [one.address, cnapi.address],
  });
  t.match(fleet.status(), { agents: 10, live: 6, legacy: 4 });
  const posting = () => new Set(cnapi.all('/sysinfo').map(({ serverUuid }) => serverUuid));
  await until(() => posting().size > 0, 'posts');
  t.ok([...posting()].every((uuid) => fleet.uuids.slice(0, 4).includes(uuid)));
});

t.test('the same seed gives the same servers', async (t) => {
  t.equal(serverUuidOf('a', 1), serverUuidOf('a', 1));
  t.not(serverUuidOf('a', 1), serverUuidOf('a', 2));
  t.match(serverUuidOf('a', 1), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}$/);
});

t.test('a silenced agent keeps its connection and sends nothing until its time is over', async (t) => {
  const one = await instance(t, { welcome: { heartbeatMs: 100 } });
  const fleet = await fleetOf(t, 3, [one]);
  const uuid = fleet.uuids[0] as string;
  const session = await until(() => one.sessions.find(({ serverUuid }) => serverUuid === uuid), 'its session');
  await session.received('heartbeat');
  fleet.silence([uuid], 8000);
  let heard = 0;
  await until(async () => {
    heard = session.frames.length;
    await new Promise((done) => setTimeout(done, 500));
    return session.frames.length === heard;
  }, 'its silence');
  t.equal(fleet.status().frozen, 1);
  await until(() => session.frames.length > heard, 'its frames again');
  t.equal(session.closed, undefined);
});

t.test('a machine that is told to reboot comes back after another boot', async (t) => {
  const one = await instance(t);
  await fleetOf(t, 1, [one]);
  const before = await one.session(0);
  const { bootId } = await before.received('hello');
  const { epoch } = await before.received('inventory');
  const id = crypto.randomUUID();
  before.task({ id, epoch, name: 'server_reboot', params: {} });
  t.equal((await before.end(id)).outcome, 'complete');
  const hellos = () => one.sessions.flatMap((session) => session.all('hello'));
  await until(() => hellos().some((hello) => hello.bootId !== bootId), 'another boot');
});

t.test('a simulated server is named, given NIC tags, rebooted and reset, and keeps what it was given', async (t) => {
  const one = await instance(t, { welcome: { heartbeatMs: 1000, sendSysinfo: true } });
  await fleetOf(t, 1, [one]);
  const run = async (session: (typeof one.sessions)[number] | undefined, name: string, params: object) => {
    if (session === undefined) throw new Error('no session');
    const { epoch } = await session.received('inventory');
    const id = crypto.randomUUID();
    session.task({ id, epoch, name, params: { ...params } });
    return session.end(id);
  };
  const [first] = one.sessions;
  const told = await first?.received('sysinfo');
  const allows = ['reboot', 'setup', 'factory-reset'];
  t.match(told?.sysinfo, { Hostname: 'node-0', Setup: 'true' });
  t.strictSame(told?.sysinfo[ALLOWED_WORK], allows, 'all workflows can be shown');
  const [nic] = Object.values(told?.sysinfo['Network Interfaces'] as Record<string, Record<string, string>>);
  const nics = [{ mac: nic?.['MAC Address'], nic_tags_provided: ['storage'] }];
  const named = await run(first, 'server_setup', { hostname: 'web-1', postsetup_script: 'echo ready', nics });
  t.match(named, { outcome: 'complete', result: { hostname: 'web-1', exitCode: 0, stdout: 'ready\n' } });
  t.match(await run(first, 'server_reboot', {}), { outcome: 'complete' });
  await until(() => one.sessions.length === 2, 'the next boot', 60_000);
  const second = one.sessions[1];
  t.match((await second?.received('sysinfo'))?.sysinfo, {
    ...{ Hostname: 'web-1', 'Network Interfaces': { eth0: { 'NIC Names': { 0: 'storage' } } } },
  });
  const drain = crypto.randomUUID();
  t.match(await run(second, 'agent_pause', { drain, lease: 60_000 }), { outcome: 'complete' });
  t.match(await run(second, 'server_factory_reset', { drain }), { outcome: 'complete' });
  const isReset = ({ sysinfo }: { sysinfo: Record<string, unknown> }) =>
    sysinfo.Setup === 'false' && JSON.stringify(sysinfo).includes('"NIC Names":["admin"]');
  t.ok(await second?.received('sysinfo', isReset), 'not set up, without its tags');
});

t.test('agents that are cut, vanish, restart or are reinstalled connect again', async (t) => {
  const one = await instance(t);
  const fleet = await fleetOf(t, 4, [one]);
  const uuids = fleet.uuids;
  const hellos = async (uuid: string, count: number) => {
    const sessions = () => one.sessions.filter(({ serverUuid }) => serverUuid === uuid);
    await until(() => sessions().length >= count, `session ${count} of ${uuid}`);
    return Promise.all(sessions().map((session) => session.received('hello')));
  };
  t.same(await runControlCommand(fleet, JSON.stringify({ do: 'cut', uuids: [uuids[0]] })), { did: 'cut', agents: 1 });
  t.same(await runControlCommand(fleet, JSON.stringify({ do: 'vanish', uuids: [uuids[1]], ms: 200 })), {
    did: 'vanish',
    agents: 1,
  });
  await runControlCommand(fleet, JSON.stringify({ do: 'restart', uuids: [uuids[2]] }));
  await runControlCommand(fleet, JSON.stringify({ do: 'reinstall', uuids: [uuids[3]] }));
  for (const [index, same] of [
    ['incarnation', 'journalId'],
    ['incarnation', 'journalId'],
    ['journalId'],
    [],
  ].entries()) {
    const [first, second] = await hellos(uuids[index] as string, 2);
    for (const key of ['incarnation', 'journalId'] as const) {
      t.equal(first?.[key] === second?.[key], same.includes(key), `${index}: ${key}`);
    }
  }
  t.match(await runControlCommand(fleet, '{"do":"dance"}'), { error: /do/ });
  t.match(await runControlCommand(fleet, 'nonsense'), { error: /JSON/ });
  await until(() => fleet.status().live === 4, 'all to be live again');
});

t.test('a slow agent answers late, not never', async (t) => {
  const one = await instance(t);
  const fleet = await fleetOf(t, 1, [one]);
  const session = await one.session(0);
  const { epoch } = await session.received('inventory');
  fleet.slow(fleet.uuids, 150);
  const id = crypto.randomUUID();
  const from = Date.now();
  session.task({ id, epoch, name: 'nop' });
  t.match(await session.end(id), { outcome: 'complete' });
  t.ok(Date.now() - from >= 290, 'delayed in both directions');
});

t.test('simulated sysinfo can be as large as that of a big server', async (t) => {
  const machine = { serverUuid: random.uuid(), number: 1, agentVersion: '1', bootedAt: 0 };
  const size = (sysinfoSize: 'small' | 'real') => JSON.stringify(simulatedSysinfo({ ...machine, sysinfoSize })).length;
  t.ok(size('small') < 2000);
  t.ok(size('real') > 35_000 && size('real') < 60_000, `${size('real')} bytes`);
});

t.test('the program reads commands from stdin and keeps its servers in its data directory', async (t) => {
  const one = await instance(t);
  const data = await mkdtemp(join(tmpdir(), 'fleet-'));
  t.teardown(() => rm(data, { recursive: true, force: true }));
  const main = fileURLToPath(new URL('../../../lib/agent/simulated/main.ts', import.meta.url));
  const servers: string[][] = [];
  for (const start of [0, 3]) {
    const child = spawn(process.execPath, [main, '--agents', '3', '--url', one.url, '--data', data], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    const lines: Record<string, unknown>[] = [];
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(JSON.parse(line)));
    await (await one.session(start + 2)).received('inventory');
    child.stdin.write('{"do":"status"}\n');
    const status = await until(() => lines.find((line) => 'status' in line), 'the status');
    t.match(status, { status: { agents: 3 } });
    servers.push(
      one.sessions
        .slice(start)
        .map(({ serverUuid }) => serverUuid)
        .sort(),
    );
    const exit = once(child, 'exit');
    child.kill('SIGTERM');
    t.same(await exit, [0, null]);
  }
  t.same(servers[0], servers[1]);
});
