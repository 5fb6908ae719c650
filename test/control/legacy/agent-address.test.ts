import t from 'tap';
import { type AddressParts, type AllowedAddresses, agentAddress } from '../../../lib/control/legacy/agent-address.ts';
import { isLoopback } from '../../../lib/platform/network/networks.ts';

const nics = (names: string[], ip4addr: unknown) => ({ 'Network Interfaces': { e0: { 'NIC Names': names, ip4addr } } });

/**
 * The agent posts from 10.0.0.5 and fd00::5. Agents may be in 10.0.1.0/24, and in networks that
 * contain the metadata addresses of clouds.
 */
const ALLOWED: AllowedAddresses = {
  sources: ['10.0.0.5', 'fd00::5', '127.0.0.2', '169.254.169.254', 'fe80::1', '::ffff:10.0.0.6'],
  networks: [
    '10.0.1.0/24',
    'fd00:ec2::/32',
    '100.0.0.0/8',
    '168.63.0.0/16',
    '192.0.0.0/16',
    '64:ff9b::/32',
    '2002::/16',
    '2001::/32',
  ],
  allowLoopback: false,
};

const table: [name: string, sysinfo: AddressParts, expected: string | RegExp][] = [
  ['the admin IP', { 'Admin IP': '10.0.0.5' }, '10.0.0.5 5309'],
  ['a port of its own', { 'Admin IP': '10.0.0.5', 'CN Agent Port': 6000 }, '10.0.0.5 6000'],
  ['a port as a text', { 'Admin IP': '10.0.0.5', 'CN Agent Port': '6000' }, '10.0.0.5 6000'],
  ['an invalid port', { 'Admin IP': '10.0.0.5', 'CN Agent Port': 65_536 }, '10.0.0.5 5309'],
  ['a port in hexadecimal', { 'Admin IP': '10.0.0.5', 'CN Agent Port': '0x1770' }, '10.0.0.5 5309'],
  ['a port with an exponent', { 'Admin IP': '10.0.0.5', 'CN Agent Port': '6e3' }, '10.0.0.5 5309'],
  ['a port with a sign', { 'Admin IP': '10.0.0.5', 'CN Agent Port': '+6000' }, '10.0.0.5 5309'],
  ["another service's port", { 'Admin IP': '10.0.0.5', 'CN Agent Port': 80 }, '10.0.0.5 5309'],
  ["another service's port as a text", { 'Admin IP': '10.0.0.5', 'CN Agent Port': '0x50' }, '10.0.0.5 5309'],
  ["the agent's IP before the admin IP", { 'Admin IP': '10.0.0.5', 'CN Agent IP': '10.0.1.6' }, '10.0.1.6 5309'],
  [
    'an invalid admin IP: the admin NIC',
    { 'Admin IP': 'dhcp', ...nics(['external', 'admin'], '10.0.1.7') },
    '10.0.1.7 5309',
  ],
  ['a NIC by its tag', { 'Admin NIC Tag': 'ops', ...nics(['ops'], '10.0.1.8') }, '10.0.1.8 5309'],
  ['IPv6', { 'Admin IP': 'fd00::5' }, 'fd00::5 5309'],
  ['IPv6, written differently', { 'Admin IP': 'fd00:0:0::0:5' }, 'fd00:0:0::0:5 5309'],
  ['IPv4 mapped into IPv6', { 'Admin IP': '::ffff:10.0.0.5' }, '::ffff:10.0.0.5 5309'],
  ['a configured network, mapped into IPv6', { 'Admin IP': '::ffff:a00:109' }, '::ffff:a00:109 5309'],
  ['a source that was IPv4 mapped into IPv6', { 'Admin IP': '10.0.0.6' }, '10.0.0.6 5309'],
  ['nothing', {}, /has no admin IP/],
  ['a name', { 'Admin IP': 'metadata.internal' }, /has no admin IP/],
  ['an address with a zone', { 'Admin IP': 'fd00::5%eth0' }, /has no admin IP/],
  ['a NIC of another net', nics(['external'], '10.0.0.5'), /has no admin IP/],
  ['NICs that are not an object', { 'Network Interfaces': ['x', null, 7] }, /has no admin IP/],
  [
    'a neighbouring address',
    { 'Admin IP': '10.0.0.7' },
    /10\.0\.0\.7 is neither an address from which its agent was heard nor/,
  ],
  ['a neighbouring address, mapped', { 'Admin IP': '::ffff:10.0.0.7' }, /is neither an address/],
  ['a public address', { 'Admin IP': '8.8.8.8' }, /is neither an address/],
  ['another IPv6 address', { 'Admin IP': 'fd00::6' }, /is neither an address/],
  ['the AWS address of credentials', { 'Admin IP': '169.254.169.254' }, /is not an address of a server/],
  ['the AWS address, mapped', { 'Admin IP': '::ffff:169.254.169.254' }, /is not an address of a server/],
  ['the AWS address, mapped and in hexadecimal', { 'Admin IP': '::ffff:a9fe:a9fe' }, /is not an address of a server/],
  ['the AWS address, embedded', { 'Admin IP': '::169.254.169.254' }, /is not an address of a server/],
  ['the AWS address, translated', { 'Admin IP': '64:ff9b::a9fe:a9fe' }, /is not an address of a server/],
  ['the AWS address, over Teredo', { 'Admin IP': '2001::5601:5601' }, /is not an address of a server/],
  ['the AWS address, over 6to4', { 'Admin IP': '2002:a9fe:a9fe::1' }, /is not an address of a server/],
  ['the Google address in IPv6', { 'Admin IP': 'fd20:ce::254' }, /is not an address of a server/],
  ['IPv4 translated into IPv6 (SIIT)', { 'Admin IP': '::ffff:0:a9fe:a9fe' }, /is not an address of a server/],
  ['the AWS address in IPv6', { 'Admin IP': 'fd00:ec2::254' }, /is not an address of a server/],
  ['the Alibaba address of credentials', { 'Admin IP': '100.100.100.200' }, /is not an address of a server/],
  ['the Azure address of its agent', { 'Admin IP': '168.63.129.16' }, /is not an address of a server/],
  ['the Oracle address of credentials', { 'Admin IP': '192.0.0.192' }, /is not an address of a server/],
  ['link-local IPv6', { 'Admin IP': 'fe80::1' }, /is not an address of a server/],
  ['no address', { 'Admin IP': '0.0.0.0' }, /is not an address of a server/],
  ['multicast', { 'Admin IP': '224.0.0.1' }, /is not an address of a server/],
  ['broadcast', { 'Admin IP': '255.255.255.255' }, /is not an address of a server/],
  ['loopback', { 'Admin IP': '127.0.0.2' }, /is a loopback address/],
  ['loopback, mapped', { 'Admin IP': '::ffff:127.0.0.1' }, /is a loopback address/],
];

t.test('sysinfo gives the address of an agent, and only known sources and configured networks count', async (t) => {
  for (const [name, sysinfo, expected] of table) {
    const look = () => agentAddress('a-server', sysinfo, ALLOWED);
    if (expected instanceof RegExp) t.throws(look, { code: 'NoAgentAddress', message: expected }, name);
    else t.equal(Object.values(look()).join(' '), expected, name);
  }
  t.equal(table.length, new Set(table.map(([name]) => name)).size);
});

t.test('agents on loopback are called if access is open or the network is configured', async (t) => {
  const local = { ...ALLOWED, allowLoopback: true };
  t.same(agentAddress('a-server', { 'Admin IP': '127.0.0.2' }, local), { host: '127.0.0.2', port: 5309 });
  t.throws(() => agentAddress('a-server', { 'Admin IP': '127.0.0.3' }, local), /is neither an address/);
  const behindProxy = { ...ALLOWED, sources: ['127.0.0.1'] };
  t.throws(() => agentAddress('a-server', { 'Admin IP': '127.0.0.1' }, behindProxy), /is a loopback address/);
  const configured = { ...behindProxy, networks: ['127.0.0.0/29'] };
  t.same(agentAddress('a-server', { 'Admin IP': '127.0.0.1' }, configured), { host: '127.0.0.1', port: 5309 });
  t.throws(() => agentAddress('a-server', { 'Admin IP': '127.0.0.9' }, configured), /is a loopback address/);
  t.same(['127.0.0.1', '::1', 'localhost', '0.0.0.0', '10.0.0.1'].map(isLoopback), [true, true, true, false, false]);
});
