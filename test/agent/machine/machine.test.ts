import { readFileSync } from 'node:fs';
import { hostname, release, totalmem } from 'node:os';
import t from 'tap';
import { openLinuxMachine } from '../../../lib/agent/machine/linux-machine.ts';
import { parseBootParameters, parseCpuinfo } from '../../../lib/agent/machine/linux-sysinfo.ts';
import { isWorthSending, Reports, VMS_GAP_MS } from '../../../lib/agent/reports/reports.ts';
import { SimulatedMachine } from '../../../lib/agent/simulated/simulated-machine.ts';
import type { Vms } from '../../../lib/agent/vms/vms.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { digestOf } from '../../../lib/protocol/json/canonical-json.ts';
import type { AgentFrame } from '../../../lib/protocol/link/frames.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';

const serverUuid = random.uuid();

t.test("the sysinfo of this machine has the keys of Triton's CNAPI", async (t) => {
  const machine = await openLinuxMachine({ clock, serverUuid, agentVersion: '1.2.3', runDirectory: '/nowhere' });
  const sysinfo = await machine.sysinfo();
  t.match(sysinfo, {
    UUID: serverUuid,
    Hostname: hostname(),
    'System Type': 'Linux',
    'Live Image': release(),
    'Boot Time': /^\d{9,11}$/,
    'MiB of Memory': String(Math.floor(totalmem() / 1024 / 1024)),
    'CPU Online Count': Number,
    'Network Interfaces': Object,
    Disks: Object,
    Setup: 'true',
    'CN Agent Version': '1.2.3',
  });
  t.equal(digestOf(sysinfo), digestOf(await machine.sysinfo()), 'the digest is the same when nothing changed');
  for (const one of Object.values(sysinfo['Network Interfaces'] as object)) {
    matchLists(t, one, { 'MAC Address': String, 'Link Status': /^(up|down)$/, 'NIC Names': [] });
  }
});

t.test("boot parameters are the kernel's, overridden by those given to the agent", async (t) => {
  const bootParameters = { headnode: 'true', console: 'vga' };
  const deps = { clock, serverUuid, agentVersion: '1', runDirectory: '/nowhere' };
  const own = parseBootParameters(readFileSync('/proc/cmdline', 'utf8'));
  t.same((await (await openLinuxMachine(deps)).sysinfo())['Boot Parameters'], own);
  const told = await openLinuxMachine({ ...deps, bootParameters });
  t.same((await told.sysinfo())['Boot Parameters'], { ...own, ...bootParameters });
  const rows: [string, Record<string, string>][] = [
    ['quiet console=ttyS0,115200 headnode=true\n', { quiet: 'true', console: 'ttyS0,115200', headnode: 'true' }],
    ['root=UUID=1-2 name="two words" "a b"=c', { root: 'UUID=1-2', name: 'two words', 'a b': 'c' }],
    ['ro empty= -- --port 1 headnode=true', { ro: 'true', empty: '' }],
    ['-- only', {}],
    ['', {}],
  ];
  for (const [line, parameters] of rows) t.same(parseBootParameters(line), parameters, line);
});

t.test("real and simulated machines report the storage figures and agents that Triton's CNAPI reports", async (t) => {
  const twelve = ['cores_quota', 'cores_quota_used', 'installed_images_used', 'kvm_quota', 'kvm_quota_used']
    .concat(['kvm_zvol_used', 'kvm_zvol_volsize', 'pool_alloc', 'pool_size', 'system_used', 'zone_quota'])
    .concat('zone_quota_used')
    .map((name) => `${name}_bytes`);
  const real = await openLinuxMachine({ clock, serverUuid, agentVersion: '1', runDirectory: '/nowhere' });
  const simulated = new SimulatedMachine({
    clock,
    random,
    serverUuid,
    number: 1,
    agentVersion: '1',
    sysinfoSize: 'small',
  });
  for (const machine of [real, simulated]) {
    const { diskinfo } = (await machine.status()) as { diskinfo: Record<string, number> };
    t.same(Object.keys(diskinfo).sort(), twelve);
    t.ok(Object.values(diskinfo).every((figure) => Number.isInteger(figure) && figure >= 0));
    matchLists(t, (await machine.sysinfo())['SDC Agents'], [{ name: 'cn-agent', version: /^2\.\d+\.0$/ }]);
  }
});

t.test("the status of this machine has the parts of Triton's CNAPI", async (t) => {
  const machine = await openLinuxMachine({ clock, serverUuid, agentVersion: '1', runDirectory: '/nowhere' });
  const status = (await machine.status()) as { meminfo: Record<string, number> };
  matchLists(t, status, { vms: {}, diskinfo: { pool_size_bytes: Number }, boot_time: String, timestamp: String });
  t.equal(status.meminfo.total_bytes, totalmem());
  t.ok((status.meminfo.availrmem_bytes ?? 0) > 0);
});

t.test('parseCpuinfo distinguishes processors, cores and sockets', async (t) => {
  const one = (processor: number, socket: number, core: number) =>
    `processor\t: ${processor}\nmodel name\t: A CPU\nphysical id\t: ${socket}\ncore id\t\t: ${core}\nflags\t\t: fpu vmx\n`;
  const text = [one(0, 0, 0), one(1, 0, 0), one(2, 0, 1), one(3, 0, 1), one(4, 1, 0), one(5, 1, 0)].join('\n');
  t.match(parseCpuinfo(text), {
    'CPU Type': 'A CPU',
    'CPU Virtualization': 'vmx',
    'CPU Physical Cores': 2,
    'CPU Core Count': 3,
    'CPU Total Cores': 6,
    'CPU Online Count': 6,
  });
  t.match(parseCpuinfo('processor : 0\n\nprocessor : 1\n'), { 'CPU Core Count': 2, 'CPU Total Cores': 2 });
});

t.test('a status is sent again when a figure moved by a twentieth or a fact changed', async (t) => {
  const status = { vms: {}, meminfo: { total_bytes: 100, availrmem_bytes: 100 }, timestamp: 'now' };
  const rows: [string, unknown, boolean][] = [
    ['the same', structuredClone(status), false],
    ['another timestamp', { ...status, timestamp: 'later' }, false],
    ['a little less memory', { ...status, meminfo: { total_bytes: 100, availrmem_bytes: 96 } }, false],
    ['much less memory', { ...status, meminfo: { total_bytes: 100, availrmem_bytes: 90 } }, true],
    ['one more VM', { ...status, vms: { a: { state: 'running' } } }, true],
    ['one key less', { vms: {}, timestamp: 'now' }, true],
  ];
  for (const [name, now, worth] of rows) t.equal(isWorthSending(status, now), worth, name);
});

t.test('status is sent at the start, each minute, and in between only after a change', async (t) => {
  const machine = new SimulatedMachine({
    clock,
    random,
    serverUuid,
    number: 1,
    agentVersion: '1',
    sysinfoSize: 'small',
  });
  let memory = 100;
  let hostnameNow = 'a';
  machine.status = async () => ({ meminfo: { availrmem_bytes: memory } });
  machine.sysinfo = async () => ({ Hostname: hostnameNow });
  const sent: AgentFrame[] = [];
  const outbox = { hasRoom: true, maxFrameBytes: 1e6, send: (frame: AgentFrame) => sent.push(frame) > 0 };
  const reports = new Reports({ clock, machine, outbox, log: silentLogger, serverUuid });
  await reports.start();
  const { digest } = reports;
  const at = async (now: number) => {
    reports.tick(now);
    await new Promise((done) => setImmediate(done));
    return sent.splice(0).map(({ type }) => type);
  };
  reports.sessionOpened(1000, false);
  t.same(await at(1000), ['status']);
  t.same(await at(6000), [], 'nothing changed');
  memory = 50;
  t.same(await at(10_000), [], 'at most one every five seconds');
  t.same(await at(11_100), ['status'], 'after a change');
  t.same(await at(60_000), []);
  hostnameNow = 'b';
  t.same(await at(71_200), ['status', 'sysinfo'], 'a minute later, after the machine changed');
  t.not(reports.digest, digest);
});

t.test('a change of a VM is told immediately, and further ones after a gap with the next status', async (t) => {
  const manual = new ManualClock();
  const machine = new SimulatedMachine({
    clock: manual,
    random,
    serverUuid,
    number: 1,
    agentVersion: '1',
    sysinfoSize: 'small',
  });
  let state = 'provisioning';
  let changed = () => undefined as unknown;
  const vms = {
    summaries: () => ({ a: { state } }) as unknown as ReturnType<Vms['summaries']>,
    onChange: (listener: () => void) => {
      changed = listener;
      return () => undefined;
    },
  };
  const sent: unknown[] = [];
  const outbox = {
    hasRoom: true,
    send: (frame: AgentFrame) =>
      sent.push((frame as unknown as { status: { vms: { a: { state: string } } } }).status.vms.a.state) > 0,
  };
  const reports = new Reports({ clock: manual, machine, outbox, log: silentLogger, serverUuid, vms });
  t.teardown(() => reports.stop());
  const become = async (next: string, afterMs: number) => {
    state = next;
    changed();
    await manual.advance(afterMs);
    return sent.splice(0);
  };
  t.same(await become('running', 0), ['running']);
  t.same(await become('stopping', 0), []);
  t.same(await become('stopped', VMS_GAP_MS), ['stopped'], 'the latest only');
  await manual.advance(VMS_GAP_MS);
  outbox.hasRoom = false;
  t.same(await become('running', VMS_GAP_MS), []);
  outbox.hasRoom = true;
  reports.tick(manual.now());
  await manual.advance(0);
  t.same(sent, ['running'], 'what the session could not take follows with the next tick');
});
