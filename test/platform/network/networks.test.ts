import t from 'tap';
import { isLoopback, normalizeAddress, reasonNotANetwork, sourceOf } from '../../../lib/platform/network/networks.ts';

t.test('a network is an address with a prefix that is not too wide', async (t) => {
  for (const text of ['10.0.0.0/24', '10.0.0.7', '10.0.0.0/8', 'fd00::/64', '::1', '192.168.1.1/32'])
    t.equal(reasonNotANetwork(text), undefined, text);
  const wrong: [text: string, message: RegExp][] = [
    ['', /is neither an IP address nor a network/],
    ['example.org/24', /is neither an IP address nor a network/],
    ['10.0.0.0/24/8', /is neither an IP address nor a network/],
    ['10.0.0.0/x', /is neither an IP address nor a network/],
    ['10.0.0.0/', /is neither an IP address nor a network/],
    ['10.0.0.0/33', /longer than \/32/],
    ['fd00::/129', /longer than \/128/],
    ['0.0.0.0/0', /wider than \/8/],
    ['::/0', /holds IPv4 addresses/],
    ['::/16', /holds IPv4 addresses/],
    ['::ffff:0:0/96', /holds IPv4 addresses/],
    ['::ffff:10.0.0.0/104', /holds IPv4 addresses/],
    ['fd00::/8', /wider than \/16/],
  ];
  for (const [text, message] of wrong) t.match(reasonNotANetwork(text), message, text);
});

t.test('normalizeAddress removes the IPv4 mapping and the zone of an address', async (t) => {
  t.equal(normalizeAddress('::ffff:10.0.0.1'), '10.0.0.1');
  t.equal(normalizeAddress('::FFFF:10.0.0.1'), '10.0.0.1');
  t.equal(normalizeAddress('fe80::1%eth0'), 'fe80::1');
  t.equal(normalizeAddress('10.0.0.1'), '10.0.0.1');
  t.equal(normalizeAddress('::ffff:0:10.0.0.1'), '::ffff:0:10.0.0.1', 'it is translated, not mapped');
});

t.test('an IPv6 /64 counts as one source', async (t) => {
  t.equal(sourceOf('10.0.0.1'), '10.0.0.1');
  const source = '2001:db8:0:1::/64';
  for (const address of ['2001:db8:0:1::', '2001:0db8:0000:0001:ffff:1:2:3', '2001:db8:0:1:1::', '2001:db8::1:0:0:0:9'])
    t.equal(sourceOf(address), source, address);
  t.not(sourceOf('2001:db8:0:2::1'), source);
  t.equal(sourceOf('::1'), '0:0:0:0::/64');
});

t.test('loopback addresses are recognized', async (t) => {
  t.same(['127.0.0.1', '127.9.9.9', '::1', 'localhost', 'LOCALHOST'].map(isLoopback), [true, true, true, true, true]);
  t.same(['0.0.0.0', '::', '10.0.0.1', 'example.org', ''].map(isLoopback), [false, false, false, false, false]);
});
