import t from 'tap';
import { capabilitiesOf, catalogueOf } from '../../lib/agent/catalogue.ts';
import type { Images } from '../../lib/agent/images/images.ts';
import type { SettingsKeeper } from '../../lib/agent/settings/settings-keeper.ts';
import type { AgentStreams } from '../../lib/agent/streams/agent-streams.ts';
import type { Vms } from '../../lib/agent/vms/vms.ts';
import type { Zfs } from '../../lib/agent/zfs/zfs.ts';

const [streams, vms, images, zfs] = [{} as AgentStreams, {} as Vms, {} as Images, {} as Zfs];
const settings = {} as SettingsKeeper;
const NAMES = [
  'nop',
  'exec',
  'machine_create',
  'vm_exec',
  'vm_logs',
  'vm_console',
  'vm_connect',
  'vm_stats',
  'image_get',
  'server_setup',
  'server_factory_reset',
  'server_update_nics',
  'zfs_list_pools',
];

/** Each row has a name, the parts of the agent, and which of NAMES its catalogue has. */
const rows: [string, Parameters<typeof catalogueOf>[0], string[]][] = [
  ['without parts it has no task of them', {}, ['nop']],
  ['with streams alone it runs commands on them', { streams }, ['nop', 'exec']],
  ['without streams its VMs have none', { vms, images }, ['nop', 'machine_create', 'image_get']],
  ['with images alone it has no VMs', { images }, ['nop', 'image_get']],
  ['with ZFS alone it has its tasks', { zfs }, ['nop', 'zfs_list_pools']],
  [
    'with settings alone it can be set up',
    { settings },
    ['nop', 'server_setup', 'server_factory_reset', 'server_update_nics'],
  ],
  ['with all parts it has all tasks', { streams, vms, images, zfs, settings }, NAMES],
];

for (const [name, parts, expected] of rows)
  t.test(name, async (t) => {
    const tasks = catalogueOf(parts);
    t.same(
      NAMES.filter((one) => tasks.has(one)),
      expected,
    );
    const announced = capabilitiesOf(tasks);
    t.same(
      NAMES.filter((one) => announced.includes(`task:${one}`)),
      expected,
      'it announces them',
    );
  });
