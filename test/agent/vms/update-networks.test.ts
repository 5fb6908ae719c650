/** Changes of networks, which concern several VMs. */
import t from 'tap';
import type { VmNetworks } from '../../../lib/protocol/vms.ts';
import { vmNetworks } from '../../../lib/protocol/vms.ts';
import { OTHER_IMAGE, payload, uuidOf, VmMachine } from '../../support/vm-rig.ts';

const NETWORK = '99999999-9999-4999-8999-999999999999';
const network = (gateway: string) => ({ uuid: NETWORK, gateway, resolvers: [], subnet: '10.0.0.0/24' });
const change: VmNetworks = vmNetworks.parse({
  original_network: network('10.0.0.1'),
  networks: [network('10.0.0.254')],
});

t.test('a change of a network changes each of its VMs, and reports those that it cannot change', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  for (const number of [1, 2, 3]) {
    const ip = `10.0.0.1${number}`;
    const nic = { network_uuid: NETWORK, nic_tag: 'br0', ip, netmask: '255.255.255.0', gateway: '10.0.0.1' };
    await vms.create(payload(number, { nics: [{ ...nic, primary: true, mac: `02:00:00:00:00:0${number}` }] }));
  }
  const { remove } = machine.host;
  machine.host.remove = () => {
    throw new Error('target is busy');
  };
  await t.rejects(vms.reprovision(uuidOf(1), OTHER_IMAGE), { code: 'VmFailed' });
  machine.host.remove = remove;
  machine.records.beforeWrite = ({ uuid }) => {
    if (uuid === uuidOf(2)) throw new Error('ENOSPC: no space left on device');
  };
  const { vms: changed, errors } = await vms.updateNetworks(change);
  t.same(changed, [uuidOf(3)]);
  t.same(
    errors.map(({ uuid, code }) => [uuid, code]),
    [
      [uuidOf(1), 'VmHasFailed'],
      [uuidOf(2), 'VmFailed'],
    ],
  );
  t.same(
    vms.list().map(({ nics }) => nics[0]?.gateway),
    ['10.0.0.1', '10.0.0.1', '10.0.0.254'],
  );
});
