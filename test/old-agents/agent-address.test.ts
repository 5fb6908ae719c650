import t from 'tap';
import { isLoopback } from '../../lib/access/networks.ts';
import { type AddressParts, agentAddress } from '../../lib/old-agents/agent-address.ts';

const nics = (names: string[], ip4addr: unknown) => ({ 'Network Interfaces': { e0: { 'NIC Names': names, ip4addr } } });

const table: [name: string, sysinfo: AddressParts, expected: string | RegExp][] = [
  ['the admin IP', { 'Admin IP': '10.0.0.5' }, '10.0.0.5 5309'],
  ['a port of its own', { 'Admin IP': '10.0.0.5', 'CN Agent Port': 6000 }, '10.0.0.5 6000'],
  ['a port as a text', { 'Admin IP': '10.0.0.5', 'CN Agent Port': '6000' }, '10.0.0.5 6000'],
  ['a port that is none', { 'Admin IP': '10.0.0.5', 'CN Agent Port': 65_536 }, '10.0.0.5 5309'],
  ["the agent's IP before the admin IP", { 'Admin IP': '10.0.0.5', 'CN Agent IP': '10.0.0.6' }, '10.0.0.6 5309'],
  [
    'an admin IP that is none: the admin NIC',
    { 'Admin IP': 'dhcp', ...nics(['external', 'admin'], '10.0.0.7') },
    '10.0.0.7 5309',
  ],
  ['a NIC by its tag', { 'Admin NIC Tag': 'ops', ...nics(['ops'], '10.0.0.8') }, '10.0.0.8 5309'],
  ['IPv6', { 'Admin IP': 'fd00::5' }, 'fd00::5 5309'],
  ['nothing', {}, /has no admin IP/],
  ['a name', { 'Admin IP': 'metadata.internal' }, /has no admin IP/],
  ['a NIC of another net', nics(['external'], '10.0.0.7'), /has no admin IP/],
  ['NICs that are no object', { 'Network Interfaces': ['x', null, 7] }, /has no admin IP/],
  [
    'link-local, where clouds keep credentials',
    { 'Admin IP': '169.254.169.254' },
    /169\.254\.169\.254 is no address of a server/,
  ],
  ['the same, mapped', { 'Admin IP': '::ffff:169.254.169.254' }, /is no address of a server/],
  ['link-local IPv6', { 'Admin IP': 'fe80::1' }, /is no address of a server/],
  ['no address', { 'Admin IP': '0.0.0.0' }, /is no address of a server/],
  ['multicast', { 'Admin IP': '224.0.0.1' }, /is no address of a server/],
  ['broadcast', { 'Admin IP': '255.255.255.255' }, /is no address of a server/],
  ['loopback', { 'Admin IP': '127.0.0.2' }, /is a loopback address/],
  ['loopback, mapped', { 'Admin IP': '::ffff:127.0.0.1' }, /is a loopback address/],
];

t.test('where an agent is, by its sysinfo', async (t) => {
  for (const [name, sysinfo, expected] of table) {
    const look = () => agentAddress('a-server', sysinfo, { allowLoopback: false });
    if (expected instanceof RegExp) t.throws(look, { code: 'NoAgentAddress', message: expected }, name);
    else t.equal(Object.values(look()).join(' '), expected, name);
  }
});

t.test('an instance that is itself on loopback may call agents there', async (t) => {
  t.same(agentAddress('a-server', { 'Admin IP': '127.0.0.2' }, { allowLoopback: true }), {
    host: '127.0.0.2',
    port: 5309,
  });
  t.same(['127.0.0.1', '::1', 'localhost', '0.0.0.0', '10.0.0.1'].map(isLoopback), [true, true, true, false, false]);
});
