import t, { type Test } from 'tap';
import type { ContainerNic, ContainerSpec } from '../../../../lib/agent/containers/container.ts';
import { ContainerError } from '../../../../lib/agent/containers/container-errors.ts';
import { ContainerNetworks } from '../../../../lib/agent/containers/network/container-networks.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { ip, lacksNamespaces, linkNames, makeBridge, Namespace } from '../../../support/namespaces.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksNamespaces();
let agents = 0;

function networksOf(t: Test, bridges: string[], ids: string[], more: object = {}): ContainerNetworks {
  agents += 1;
  const scope = `test-${process.pid}-${agents}`;
  const networks = new ContainerNetworks({ scope, bridges, ...more });
  t.teardown(() => Promise.all(ids.map((id) => networks.detach(id))));
  return networks;
}

const specOf = (id: string, ...nics: ContainerNic[]) => ({ id, nics }) as unknown as ContainerSpec;
const portsOf = (bridge: string): { ifname: string; ifalias?: string; address: string; mtu: number }[] =>
  JSON.parse(ip('-j', 'link', 'show', 'master', bridge));

t.test('containers on one bridge reach each other, by both families', { skip }, async (t) => {
  const bridge = makeBridge(t, 1400);
  const networks = networksOf(t, [bridge], ['a', 'b', 'c']);
  const [a, b, isolated] = [await Namespace.make(t), await Namespace.make(t), await Namespace.make(t)];
  await networks.attach(
    specOf('a', { name: 'eth0', bridge, mac: '02:00:00:00:0a:0a', addresses: ['10.213.1.1/24', 'fd13::1/64'] }),
    1,
    a.pid,
  );
  const nic = { name: 'net.7', bridge, addresses: ['10.213.1.2/24', 'fd13::2/64'], gateway: '10.213.1.1' };
  await networks.attach(specOf('b', nic), 1, b.pid);
  await networks.attach(specOf('c'), 1, isolated.pid);

  t.ok(a.reaches('10.213.1.2'));
  t.ok(b.reaches('fd13::1'));
  t.notOk(isolated.reaches('10.213.1.1', 1), 'one without interfaces reaches nobody');
  t.same(isolated.links(), []);
  matchLists(t, a.links(), [{ ifname: 'eth0', address: '02:00:00:00:0a:0a', mtu: 1400, operstate: 'UP' }]);
  matchLists(t, b.links(), [{ ifname: 'net.7', address: /^02:/, mtu: 1400 }]);
  matchLists(t, JSON.parse(b.run('ip', '-j', 'route', 'show', 'default').stdout), [
    { gateway: '10.213.1.1', dev: 'net.7' },
  ]);
  const ports = portsOf(bridge);
  t.same(ports.map(({ ifalias }) => ifalias).sort(), ['cnapi:a', 'cnapi:b']);
  t.ok(ports.every(({ ifname, address }) => ifname.length === 15 && address.startsWith('fe:')));
});

t.test('containers on different bridges do not reach each other', { skip }, async (t) => {
  const [one, two] = [makeBridge(t), makeBridge(t)];
  const networks = networksOf(t, [one, two], ['a', 'b', 'both']);
  const [a, b, both] = [await Namespace.make(t), await Namespace.make(t), await Namespace.make(t)];
  await networks.attach(specOf('a', { name: 'eth0', bridge: one, addresses: ['10.213.2.1/24'] }), 1, a.pid);
  await networks.attach(specOf('b', { name: 'eth0', bridge: two, addresses: ['10.213.2.2/24'] }), 1, b.pid);
  const nics = [
    { name: 'eth0', bridge: one, addresses: ['10.213.2.3/24', 'fd14::3/64'], gateway: 'fd14::1' },
    { name: 'eth1', bridge: two, addresses: [] },
  ];
  await networks.attach(specOf('both', ...nics), 1, both.pid);
  t.ok(both.reaches('10.213.2.1'));
  t.notOk(a.reaches('10.213.2.2', 1));
  matchLists(t, both.links(), [{ ifname: 'eth0' }, { ifname: 'eth1', operstate: 'UP' }]);
  matchLists(t, JSON.parse(both.run('ip', '-6', '-j', 'route', 'show', 'default').stdout), [{ gateway: 'fd14::1' }]);
});

t.test('a detach removes all, also what a killed agent has left, and can be repeated', { skip }, async (t) => {
  const bridge = makeBridge(t);
  const networks = networksOf(t, [bridge], ['a', 'b']);
  const [a, b] = [await Namespace.make(t), await Namespace.make(t)];
  const nics = [0, 1].map((index) => ({ name: `eth${index}`, bridge, addresses: [] }));
  await networks.attach(specOf('a', ...nics), 1, a.pid);
  await networks.attach(specOf('b', ...nics), 1, b.pid);
  t.equal(portsOf(bridge).length, 4);
  const mac = a.links()[0]?.address;
  await networks.attach(specOf('a', ...nics), 2, a.pid);
  t.equal(portsOf(bridge).length, 4, 'another start replaces them');
  t.equal(a.links()[0]?.address, mac, 'with the same MAC');
  await networks.detach('a');
  await networks.detach('a');
  t.same(a.links(), []);
  t.equal(portsOf(bridge).length, 2, 'those of others stay');
  await b.end();
  await networks.detach('b');
  t.same(portsOf(bridge), []);
});

t.test('agents of one machine do not touch the links of each other', { skip }, async (t) => {
  const bridge = makeBridge(t);
  const [one, two] = [networksOf(t, [bridge], ['a']), networksOf(t, [bridge], ['a'])];
  const a = await Namespace.make(t);
  await one.attach(specOf('a', { name: 'eth0', bridge, addresses: [] }), 1, a.pid);
  await two.detach('a');
  t.equal(portsOf(bridge).length, 1);
});

t.test('if a part fails nothing is left', { skip }, async (t) => {
  const bridge = makeBridge(t);
  const a = await Namespace.make(t);
  a.run('ip', 'link', 'add', 'dev', 'taken', 'type', 'veth', 'peer', 'name', 'taken-peer');
  const networks = networksOf(t, [bridge, 'ct-none', 'lo'], ['a']);
  const good = { name: 'eth0', bridge, addresses: [] };
  const rows: Record<string, [ContainerNic, RegExp]> = {
    'a bridge that is not allowed': [{ ...good, name: 'eth1', bridge: 'br-x' }, /bridge br-x is not allowed/],
    'a bridge that does not exist': [
      { ...good, name: 'eth1', bridge: 'ct-none' },
      /There is no bridge ct-none on this/,
    ],
    'an interface that is not a bridge': [
      { ...good, name: 'eth1', bridge: 'lo' },
      /interface lo of this server is not a bridge/,
    ],
    'a name that is taken': [{ ...good, name: 'taken' }, /The network cannot be set up: .*File exists/],
    'a gateway that is not reached': [{ ...good, name: 'eth1', gateway: '10.213.9.1' }, /cannot be set up: .*gateway/],
  };
  const before = linkNames();
  for (const [name, [bad, message]] of Object.entries(rows)) {
    await t.rejects(networks.attach(specOf('a', good, bad), 1, a.pid), { constructor: ContainerError, message }, name);
    t.same(portsOf(bridge), []);
    t.same(linkNames(), before);
    t.same(
      a
        .links()
        .map(({ ifname }) => ifname)
        .sort(),
      ['taken', 'taken-peer'],
    );
  }
});

t.test('a process that is gone is named as the reason', { skip }, async (t) => {
  const bridge = makeBridge(t);
  const a = await Namespace.make(t);
  await a.end();
  const networks = networksOf(t, [bridge], ['a']);
  const attached = networks.attach(specOf('a', { name: 'eth0', bridge, addresses: [] }), 1, a.pid);
  await t.rejects(attached, { message: /The network cannot be set up/ });
  t.same(portsOf(bridge), []);
});

t.test('makes its own bridge, once, and leads to the machine', { skip }, async (t) => {
  const name = `ct${process.pid.toString(36)}own`;
  const address = `198.18.${process.pid % 256}.1/24`;
  t.teardown(() => ip('link', 'delete', 'dev', name));
  const ownBridge = { name, address };
  await networksOf(t, [name], [], { ownBridge }).open();
  const networks = networksOf(t, [name], ['a'], { ownBridge });
  await networks.open();
  const [link] = JSON.parse(ip('-j', '-d', 'address', 'show', 'dev', name));
  t.equal(link.linkinfo.info_kind, 'bridge');
  t.equal(link.addr_info[0].local, address.split('/')[0]);
  const a = await Namespace.make(t);
  const gateway = `198.18.${process.pid % 256}.1`;
  const nic = { name: 'eth0', bridge: name, addresses: [`198.18.${process.pid % 256}.2/24`], gateway };
  await networks.attach(specOf('a', nic), 1, a.pid);
  t.ok(a.reaches(gateway));
  t.equal(JSON.parse(ip('-j', 'link', 'show', 'dev', name))[0].address, link.address, 'its MAC stays the same');
  const wrong = networksOf(t, [], [], { ownBridge: { name: 'lo', address } });
  await t.rejects(wrong.open(), { message: /The interface lo of this server is not a bridge/ });
});

t.test('where it is not permitted it says so', { skip }, async (t) => {
  const bridge = makeBridge(t);
  const a = await Namespace.make(t);
  const networks = networksOf(t, [bridge], []);
  process.seteuid?.(65_534);
  const attached = networks.attach(specOf('a', { name: 'eth0', bridge, addresses: [] }), 1, a.pid);
  attached.catch(() => undefined);
  await attached.catch(() => undefined).finally(() => process.seteuid?.(0));
  await t.rejects(attached, { message: /^This agent may not set up network interfaces here; run it as root/ });
});
