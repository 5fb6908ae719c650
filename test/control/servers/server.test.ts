import t from 'tap';
import {
  applySysinfo,
  composeServer,
  countMisnamedVms,
  INITIAL_DEFAULTS,
  parseReport,
  type ServerDocument,
} from '../../../lib/control/servers/server.ts';
import {
  applyUpdate,
  checkUpdate,
  InvalidServerUpdateError,
  type ServerUpdate,
} from '../../../lib/control/servers/server-update.ts';
import { matchLists } from '../../support/match-lists.ts';

const UUID = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const vm = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`;
const MIB = 1024 * 1024;
const context = { defaults: INITIAL_DEFAULTS, datacenter: 'dc', observedAt: '2030-01-01T00:00:00.000Z' };
const created = (sysinfo = {}): ServerDocument => applySysinfo(undefined, UUID, sysinfo, context);

t.test('a new server has the defaults and no stored status', (t) => {
  t.same(created(), {
    uuid: UUID,
    agents: [],
    boot_modules: [],
    boot_params: {},
    boot_platform: '',
    comments: '',
    created: '2030-01-01T00:00:00.000Z',
    datacenter: 'dc',
    default_console: 'serial',
    headnode: false,
    hostname: '',
    kernel_flags: {},
    rack_identifier: '',
    reservation_ratio: 0.15,
    reserved: false,
    reservoir: false,
    serial: 'ttyb',
    setup: false,
    traits: {},
  });
  t.end();
});

t.test('fields of a server are derived from its sysinfo', (t) => {
  const cases: [string, object, object][] = [
    ['memory as text', { 'MiB of Memory': '4095' }, { ram: 4095 }],
    ['memory that is not a number', { 'MiB of Memory': 'much' }, { ram: undefined }],
    ['memory as number', { 'MiB of Memory': 4095.9 }, { ram: 4095 }],
    ['the boot time', { 'Boot Time': '0' }, { last_boot: '1970-01-01T00:00:00.000Z' }],
    ['the creation of the pool', { 'Zpool Creation': 1 }, { created: '1970-01-01T00:00:01.000Z' }],
    ['setup as boolean', { Setup: true }, { setup: true }],
    ['setup as text', { Setup: 'true' }, { setup: true }],
    ['not set up', { Setup: 'false' }, { setup: false }],
    ['headnode', { 'Boot Parameters': { headnode: 'true' } }, { headnode: true }],
    ['a headnode as boolean counts as none', { 'Boot Parameters': { headnode: true } }, { headnode: false }],
    ['agents', { 'SDC Agents': [{ name: 'a' }, 'x'] }, { agents: [{ name: 'a' }] }],
    [
      'platform and type',
      { 'Live Image': '6.1', 'System Type': 'Linux' },
      { current_platform: '6.1', system_type: 'Linux' },
    ],
  ];
  for (const [name, sysinfo, wanted] of cases) t.match(created(sysinfo), wanted, name);
  const nonsense = created({
    'MiB of Memory': '99999999999999999999',
    'Boot Time': 1e300,
    Hostname: 7,
    'SDC Agents': {},
    'Live Image': [],
    'Boot Parameters': null,
  });
  t.same(nonsense, created(), 'invalid values are ignored');
  t.end();
});

t.test('later sysinfo updates derived fields, but not hostname, created and agents', (t) => {
  const before = created({ Hostname: 'first', 'Zpool Creation': 1, 'SDC Agents': [{ name: 'a' }], 'MiB of Memory': 1 });
  const after = applySysinfo(
    before,
    UUID,
    { Hostname: 'second', 'Zpool Creation': 2, 'SDC Agents': [{ name: 'b' }], 'MiB of Memory': 2 },
    context,
  );
  matchLists(t, after, { hostname: 'first', created: before.created, agents: [{ name: 'a' }], ram: 2 });
  t.match(applySysinfo(after, UUID, {}, context), { ram: 2 }, 'missing keys change nothing');
  t.end();
});

t.test('the sysinfo of an agent of this project says which agents its server has now', (t) => {
  const before = created({ 'SDC Agents': [{ name: 'cn-agent', version: '2.7.0' }] });
  const own = { 'CN Agent Version': '1.0.0' };
  const agents = [{ name: 'cn-agent', version: '2.14.0' }];
  t.strictSame(applySysinfo(before, UUID, { ...own, 'SDC Agents': agents }, context).agents, agents);
  t.strictSame(applySysinfo(before, UUID, own, context).agents, before.agents);
  t.end();
});

t.test('a new boot ends a transitional status', (t) => {
  const before = applyUpdate(created({ 'Boot Time': 1 }), { transitional_status: 'rebooting' }, 4);
  t.match(before, { transitional_status: 'rebooting', transitional_epoch: 4 });
  t.match(applySysinfo(before, UUID, { 'Boot Time': 1 }, context), { transitional_status: 'rebooting' });
  const after = applySysinfo(before, UUID, { 'Boot Time': 2 }, context);
  t.notOk('transitional_status' in after || 'transitional_epoch' in after);
  t.end();
});

t.test('the displayed status combines the roster row and the transitional status', (t) => {
  const moving = { uuid: UUID, transitional_status: 'rebooting', transitional_epoch: 4 };
  const aimless = { uuid: UUID, transitional_status: 'rebooting' };
  const cases: [string, Parameters<typeof composeServer>[0], string][] = [
    ['no roster row', { document: { uuid: UUID }, status: null, epoch: null }, 'unknown'],
    ['running', { document: { uuid: UUID }, status: 'running', epoch: 1 }, 'running'],
    ['running, told to reboot', { document: moving, status: 'running', epoch: 4 }, 'running'],
    ['away for the reboot', { document: moving, status: 'unknown', epoch: 4 }, 'rebooting'],
    ['away after a later session', { document: moving, status: 'unknown', epoch: 5 }, 'unknown'],
    ['away, without any session', { document: aimless, status: null, epoch: null }, 'rebooting'],
    ['away after its first session', { document: aimless, status: 'unknown', epoch: 1 }, 'unknown'],
    ['cleared', { document: { ...moving, transitional_status: '' }, status: 'unknown', epoch: 4 }, 'unknown'],
  ];
  for (const [name, parts, status] of cases) {
    const server = composeServer(parts);
    t.equal(server.status, status, name);
    t.notOk('transitional_epoch' in server, name);
  }
  t.equal(composeServer({ document: moving, status: 'running', epoch: 4 }).transitional_status, 'rebooting');
  const after = composeServer({ document: moving, status: 'running', epoch: 5 });
  t.notOk('transitional_status' in after, 'an ended transitional status is not shown');
  t.end();
});

t.test('provisionable memory is the total less the reserved share and the limits of the VMs', (t) => {
  const report = parseReport(UUID, {
    vms: { [vm(1)]: { max_physical_memory: 100 }, [vm(2)]: { max_physical_memory: '50' }, [vm(3)]: {}, [vm(4)]: 7 },
    meminfo: { total_bytes: 9 },
  });
  const provisionable = (document: object) =>
    composeServer({ document: { uuid: UUID, ...document }, status: null, epoch: null, report })
      .memory_provisionable_bytes;
  t.equal(provisionable({ ram: 1000, reservation_ratio: 0.15 }), 700 * MIB);
  t.equal(
    provisionable({ reservation_ratio: 0.5 }),
    Math.floor(9 - 4.5 - 150 * MIB),
    'without sysinfo, the reported total',
  );
  const empty = composeServer({ document: { uuid: UUID }, status: null, epoch: null, report: parseReport(UUID, {}) });
  t.notOk('memory_provisionable_bytes' in empty);
  t.end();
});

t.test('a report keeps the known fields of VMs, and has a limited number of them', (t) => {
  const one = { uuid: UUID, state: 'running', alias: 'a'.repeat(501), quota: 1, env: ['SECRET'], tags: { a: 1 } };
  t.same(parseReport(UUID, { vms: { [UUID]: one } }).vms, { [UUID]: { uuid: UUID, state: 'running', quota: 1 } });
  const vms = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [vm(n), {}]));
  t.equal(Object.keys(parseReport(UUID, { vms: vms(1_000) }).vms).length, 1_000);
  t.throws(() => parseReport(UUID, { vms: vms(1_001) }), { code: 'TooManyVms', statusCode: 409, message: /1001 VMs/ });
  t.end();
});

// Another key names no row of a VM, so the report would be written again each time.
t.test('a report keeps only VMs that are named by a uuid in lower case', (t) => {
  const named = { [UUID]: { state: 'running' } };
  const vms = { ...named, [UUID.toUpperCase()]: {}, 'vm-1': {}, '': {}, [`${UUID}0`]: {}, [` ${UUID}`]: {} };
  t.same(parseReport(UUID, { vms }).vms, named);
  t.equal(countMisnamedVms({ vms }), 5);
  t.equal(countMisnamedVms({ vms: named }), 0);
  t.equal(countMisnamedVms({ vms: 7 }), 0);
  t.end();
});

t.test('a report keeps known figures under their served names, and all VMs', (t) => {
  t.same(
    parseReport(UUID, {
      vms: { [vm(1)]: { state: 'running' }, [vm(2)]: null },
      meminfo: { arcsize_bytes: 1, x: 2 },
      diskinfo: { pool_size_bytes: 3, y: 4 },
      z: 5,
    }),
    {
      vms: { [vm(1)]: { state: 'running' } },
      memory: { memory_arc_bytes: 1 },
      disk: { disk_pool_size_bytes: 3 },
    },
  );
  t.same(parseReport(UUID, { meminfo: 'x', diskinfo: [], vms: 1 }), { vms: {}, memory: {}, disk: {} });
  t.end();
});

t.test('an invalid update names its field', (t) => {
  const cases: [ServerUpdate, string][] = [
    [{ next_reboot: 'tomorrow' }, 'next_reboot'],
    [{ next_reboot: '2030-01-01' }, 'next_reboot'],
    [{ next_reboot: '2030-02-31T00:00:00.000Z' }, 'next_reboot'],
    [{ overprovision_ratios: { zz: 1 } }, 'overprovision_ratios'],
    [{ overprovision_ratios: { ram: Number.NaN } }, 'overprovision_ratios'],
    [{ agents: ['x'] }, 'agents'],
    [{ transitional_status: 'flying' }, 'transitional_status'],
  ];
  for (const [update, field] of cases) {
    try {
      checkUpdate(update);
      t.fail(`${JSON.stringify(update)} passed`);
    } catch (error) {
      t.ok(error instanceof InvalidServerUpdateError);
      t.equal((error as InvalidServerUpdateError).errors?.[0]?.field, field);
    }
  }
  checkUpdate({
    next_reboot: '',
    transitional_status: '',
    overprovision_ratios: { ram: 2, cpu: 0 },
    reservation_ratio: 0.5,
  });
  // The ratio has no limits, like in Triton's CNAPI.
  for (const reservation_ratio of [-0.1, 1.1]) checkUpdate({ reservation_ratio });
  t.end();
});

t.test('an update stores the stored fields and nothing else', (t) => {
  const after = applyUpdate(
    created(),
    { comments: 'x', nics: [1], overprovision_ratios: { ram: 1 }, reserved: undefined },
    null,
  );
  t.same(after, { ...created(), comments: 'x' });
  const moving = applyUpdate(created(), { transitional_status: 'rebooting' }, 3);
  t.same(applyUpdate(moving, { transitional_status: '' }, 3), created());
  t.same(applyUpdate(applyUpdate(created(), { next_reboot: 'x' }, null), { next_reboot: '' }, null), created());
  t.end();
});

t.test('a sysinfo does not make a server set up that a job resets', async (t) => {
  const resetting = applyUpdate(created({ Setup: 'true' }), { setup: false, resetting: true }, null);
  const after = applySysinfo(resetting, UUID, { Setup: 'true', 'MiB of Memory': '7' }, context);
  t.match(after, { setup: false, ram: 7 });
  t.notOk('resetting' in composeServer({ document: after, status: 'running', epoch: 1 } as never), 'it is not served');
  for (const end of [{ resetting: false }, { setup: true }])
    t.match(applySysinfo(applyUpdate(after, end, null), UUID, { Setup: 'true' }, context), { setup: true });
});
