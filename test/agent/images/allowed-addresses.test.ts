/** Where host names of allowed URLs may lead, with a real HTTP server. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { allowedTargets } from '../../../lib/agent/images/allowed-addresses.ts';
import { imageServer } from '../../support/image-server.ts';
import { SMALL, store } from '../../support/image-store.ts';
import { cannotMount } from '../../support/mounted-folder.ts';

const needs = { skip: cannotMount() };

/** The addresses of a name; those that may be used, or that it is refused. */
const NAMES: readonly [string, string[], string[] | RegExp][] = [
  ['a public address', ['192.0.2.1'], ['192.0.2.1']],
  ['a private address', ['10.0.0.5'], ['10.0.0.5']],
  ['a private IPv6 address', ['fd00::5'], ['fd00::5']],
  ['loopback', ['127.0.0.1'], /has the address 127\.0\.0\.1/],
  ['another loopback address', ['127.8.9.1'], /127\.8\.9\.1/],
  ['IPv6 loopback', ['::1'], /::1/],
  ['loopback as IPv6', ['::ffff:127.0.0.1'], /::ffff:127/],
  ['the metadata service', ['169.254.169.254'], /169\.254/],
  ['IPv6 link-local', ['fe80::1'], /fe80::1/],
  ['IPv6 link-local with a zone', ['fe80::1%eth0'], /fe80::1/],
  ['the metadata service of Amazon by IPv6', ['fd00:ec2::254'], /fd00:ec2/],
  ['the metadata service of Google by IPv6', ['fd20:ce::254'], /fd20:ce/],
  ['the metadata service of Oracle by IPv6', ['fd00:c1::a9fe:a9fe'], /fd00:c1/],
  ['the metadata service as IPv6', ['::ffff:169.254.169.254'], /::ffff:169/],
  ['the metadata service as IPv6, in hexadecimal', ['::ffff:a9fe:a9fe'], /::ffff:a9fe/],
  ['the metadata service as compatible IPv6', ['::169.254.169.254'], /::169/],
  ['the metadata service by NAT64', ['64:ff9b::169.254.169.254'], /64:ff9b::169/],
  ['the metadata service by a local NAT64', ['64:ff9b:1::a9fe:a9fe'], /64:ff9b:1/],
  ['the metadata service by 6to4', ['2002:a9fe:a9fe::1'], /2002:a9fe/],
  ['loopback by NAT64', ['64:ff9b::127.0.0.1'], /64:ff9b::127/],
  ['loopback by 6to4', ['2002:7f00:1::'], /2002:7f00/],
  ['loopback as compatible IPv6', ['::127.0.0.1'], /::127/],
  ['a public address by NAT64', ['64:ff9b::192.0.2.1'], ['64:ff9b::192.0.2.1']],
  ['a public address by 6to4', ['2002:c000:201::1'], ['2002:c000:201::1']],
  ['a public address as IPv6', ['::ffff:192.0.2.1'], ['::ffff:192.0.2.1']],
  ['a translated IPv4 address', ['::ffff:0:192.0.2.1'], /::ffff:0:192/],
  ['loopback, translated', ['::ffff:0:7f00:1'], /::ffff:0:7f00/],
  ['a local NAT64 with a longer prefix', ['64:ff9b:1:abcd::a9fe:a9fe'], /64:ff9b:1:abcd/],
  ['the metadata service by a local NAT64 of 48 bits', ['64:ff9b:1:a9fe:a9:fe00::'], /64:ff9b:1:a9fe/],
  ['Teredo', ['2001::1'], /2001::1/],
  ['the metadata service by Teredo', ['2001:0:a9fe:a9fe::1'], /2001:0:a9fe/],
  ['a public IPv6 address beside Teredo', ['2001:db8::1'], ['2001:db8::1']],
  ['the wire server of Azure', ['168.63.129.16'], /168\.63/],
  ['the wire server of Azure by NAT64', ['64:ff9b::168.63.129.16'], /64:ff9b::168/],
  ['the wire server of Azure by 6to4', ['2002:a83f:8110::1'], /2002:a83f/],
  ['the metadata service of Alibaba', ['100.100.100.200'], /100\.100/],
  ['the metadata service of Alibaba as compatible IPv6', ['::100.100.100.200'], /::100/],
  ['the former metadata service of Oracle', ['192.0.0.192'], /192\.0\.0/],
  ['the former metadata service of Oracle by 6to4', ['2002:c000:c0::1'], /2002:c000/],
  ['an address beside one that is refused', ['168.63.129.17'], ['168.63.129.17']],
  ['multicast', ['224.0.0.251'], /224\.0/],
  ['IPv6 multicast', ['ff02::1'], /ff02/],
  ['broadcast', ['255.255.255.255'], /255\.255/],
  ['a reserved address', ['240.0.0.1'], /240\.0/],
  ['no IPv6 address', ['::'], /has the address ::,/],
  ['no address', ['0.0.0.0'], /0\.0\.0\.0/],
  ['a possible address beside loopback', ['127.0.1.1', '10.0.0.5'], ['10.0.0.5']],
  ['nothing', [], []],
];

t.test('a name may lead to any address but those of this machine and its link', async (t) => {
  const url = new URL('https://images.example:8443/one');
  const allowed = { urls: ['https://images.example:8443'], directories: [] };
  for (const [what, addresses, expected] of NAMES) {
    const targets = allowedTargets(url, allowed, async () => addresses);
    if (expected instanceof RegExp)
      await t.rejects(targets, { code: 'ImageSourceNotAllowed', message: expected }, what);
    else
      t.same(
        await targets,
        expected.map((host) => ({ host, port: 8443, name: 'images.example', tls: { names: ['images.example'] } })),
        what,
      );
  }
});

t.test('addresses that the configuration names are possible, and so is localhost', async (t) => {
  const named = { urls: ['http://images.example', 'http://169.254.1.2', 'http://localhost'], directories: [] };
  const hostsOf = async (url: string, addresses: string[]) =>
    (await allowedTargets(new URL(url), named, async () => addresses)).map(({ host }) => host);
  t.same(await hostsOf('http://images.example/one', ['169.254.1.2']), ['169.254.1.2']);
  t.same(await hostsOf('http://169.254.1.2/one', []), ['169.254.1.2']);
  for (const url of ['http://images.example:8080/one', 'https://images.example/one'])
    await t.rejects(hostsOf(url, ['169.254.1.2']), { code: 'ImageSourceNotAllowed' }, 'only at the port that is named');
  t.same(await hostsOf('http://localhost/one', []), ['localhost']);
  await t.rejects(hostsOf('http://images.example/one', ['127.0.0.1']), { code: 'ImageSourceNotAllowed' });
});

t.test('a URL and a redirect whose names lead to this machine are refused before a connection', needs, async (t) => {
  const [server, other] = [await imageServer(t, { body: SMALL }), await imageServer(t, { body: SMALL })];
  const byName = other.url.replace('127.0.0.1', 'images.example');
  const { images } = await store(t, { urls: [server.url, byName], lookUp: async () => ['127.0.0.2'] });
  const refused = (url: string) =>
    t.rejects(images.ensure({ uuid: randomUUID(), url }), { code: 'ImageSourceNotAllowed', message: /127\.0\.0\.2/ });
  await refused(byName);
  server.served.answer = (_request, response) => {
    response.writeHead(302, { location: byName });
    response.end();
  };
  await refused(server.url);
  t.same([server.asked, other.asked], [['whole'], []]);
});

t.test('the server is asked under its name, at the address that was checked', needs, async (t) => {
  const server = await imageServer(t, { body: SMALL });
  const byName = server.url.replace('127.0.0.1', 'images.example');
  const lookUp = async () => ['127.0.0.1'];
  const { images } = await store(t, { urls: [byName, server.url], lookUp });
  const hosts: unknown[] = [];
  server.served.answer = (request, response) => {
    hosts.push(request.headers.host);
    response.end(SMALL);
  };
  t.equal((await images.ensure({ uuid: randomUUID(), url: byName })).state.name, 'ready');
  t.same(hosts, [new URL(byName).host]);
});
