import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { decode, encode } from 'dns-packet';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { FrameReader, frame } from '../../../lib/platform/dns/frames.ts';
import { NameServerAddressError } from '../../../lib/platform/dns/name-server.ts';
import type { ZoneInstance } from '../../../lib/platform/dns/zone.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';
import { until } from '../../support/until.ts';
import { instancesNumbering, newNameServer, service, startNameServer } from './support.ts';

t.test('Node finds the instances by SRV, A and AAAA', async (t) => {
  const instances: ZoneInstance[] = [...instancesNumbering(2), { uuid: 'six', host: '::1', port: 9 }];
  const { resolver } = await serverAndResolver(t, instances);
  const found = await resolver.resolveSrv(`_http._tcp.${service}`);
  t.same(
    found.map(({ name, port }) => `${name} ${port}`).sort(),
    instances.map(({ uuid, port }) => `${uuid}.${service} ${port}`).sort(),
  );
  t.same((await resolver.resolve4(service)).sort(), ['127.0.0.1', '127.0.0.2']);
  t.same(await resolver.resolve6(service), ['::1']);
  t.same(await resolver.resolve4(found.find(({ port }) => port === 8081)?.name ?? ''), ['127.0.0.2']);
  t.same(await resolver.resolve4(service, { ttl: true }).then(([first]) => first?.ttl), 1);
  t.match(await resolver.resolveSoa('local.cnapi.internal'), { minttl: 1, nsname: 'ns.local.cnapi.internal' });
  t.same(await resolver.resolveNs('local.cnapi.internal'), ['ns.local.cnapi.internal']);
});

t.test('Node gets ENOTFOUND, ENODATA or EREFUSED where there is no record', async (t) => {
  const { resolver } = await serverAndResolver(t, []);
  await t.rejects(resolver.resolve4(`nobody.${service}`), { code: 'ENOTFOUND' });
  await t.rejects(resolver.resolve4(service), { code: 'ENODATA' });
  await t.rejects(resolver.resolve4('example.org'), { code: 'EREFUSED' });
});

t.test('more instances than fit into a datagram are answered over TCP', async (t) => {
  const { resolver } = await serverAndResolver(t, instancesNumbering(100));
  t.equal((await resolver.resolveSrv(`_http._tcp.${service}`)).length, 100);
});

t.test('each query is answered with the instances live at that moment, in random order', async (t) => {
  const instances = instancesNumbering(4);
  const { resolver } = await serverAndResolver(t, instances);
  const firsts = new Set<string | undefined>();
  for (let round = 0; round < 200 && firsts.size < 4; round++) firsts.add((await resolver.resolve4(service))[0]);
  t.equal(firsts.size, 4);
  instances.splice(1);
  t.same(await resolver.resolve4(service), ['127.0.0.1']);
});

t.test('several queries in one TCP stream are answered in order, also in pieces', async (t) => {
  const server = await startNameServer(t, instancesNumbering(1));
  const socket = await open(t, server.port);
  const queries = [1, 2, 3].map((id) => frame(encode({ id, questions: [{ name: service, type: 'A' }] })));
  const stream = Buffer.concat(queries);
  socket.write(stream.subarray(0, 40));
  await systemClock.sleep(20);
  socket.write(stream.subarray(40));
  t.same(
    (await take(socket, 3)).map((bytes) => decode(bytes).id),
    [1, 2, 3],
  );
});

t.test('a connection that is idle, too slow, sends too much or sends responses is closed', async (t) => {
  const hasty: Clock = { ...systemClock, after: (delayMs, callback) => systemClock.after(delayMs / 50, callback) };
  const server = await startNameServer(t, instancesNumbering(1), { clock: hasty });
  const idle = await open(t, server.port);
  await closed(idle);
  const dripping = await open(t, server.port);
  const drips = systemClock.every(20, () => dripping.write('\0'.repeat(1)));
  dripping.write(Buffer.from([0x0f, 0xff]));
  await closed(dripping);
  drips.cancel();
  for (const bytes of [Buffer.alloc(2, 0xff), frame(encode({ type: 'response', id: 1 })), frame(Buffer.alloc(3))]) {
    const socket = await open(t, server.port);
    socket.write(bytes);
    await closed(socket);
  }
  t.pass('all were closed');
});

t.test('connections above the limit are closed, and the others continue', async (t) => {
  const server = await startNameServer(t, instancesNumbering(1));
  const sockets = await Promise.all(Array.from({ length: 64 }, (_, n) => open(t, server.port, `127.0.1.${n >> 3}`)));
  const one = sockets[0];
  if (!one) throw new Error('unreachable');
  one.write(frame(encode({ id: 1, questions: [{ name: service, type: 'A' }] })));
  await take(one, 1);
  const late = await open(t, server.port, '127.0.1.200');
  await closed(late);
  one.write(frame(encode({ id: 2, questions: [{ name: service, type: 'A' }] })));
  t.equal(decode((await take(one, 1))[0] ?? Buffer.alloc(0)).id, 2);
});

t.test('one address may hold a few connections only, and others keep theirs', async (t) => {
  const server = await startNameServer(t, instancesNumbering(1));
  const greedy = await Promise.all(Array.from({ length: 8 }, () => open(t, server.port, '127.0.1.1')));
  await closed(await open(t, server.port, '127.0.1.1'));
  const other = await open(t, server.port, '127.0.1.2');
  other.write(frame(encode({ id: 7, questions: [{ name: service, type: 'A' }] })));
  t.equal(decode((await take(other, 1))[0] ?? Buffer.alloc(0)).id, 7);
  greedy[0]?.destroy();
  const query = frame(encode({ id: 8, questions: [{ name: service, type: 'A' }] }));
  const again = await until(async () => {
    const socket = await open(t, server.port, '127.0.1.1');
    socket.write(query);
    return await take(socket, 1).catch(() => undefined);
  }, 'the place of the closed connection to be free');
  t.equal(decode(again[0] ?? Buffer.alloc(0)).id, 8);
});

t.test('a client that never reads the replies is closed before it fills the memory', async (t) => {
  const server = await startNameServer(t, instancesNumbering(100));
  const socket = await open(t, server.port);
  socket.pause();
  const query = frame(encode({ id: 1, questions: [{ name: `_http._tcp.${service}`, type: 'SRV' }] }));
  const batch = Buffer.concat(Array(100).fill(query));
  while (!socket.closed) {
    socket.write(batch);
    await systemClock.sleep(5);
  }
  t.pass('it was closed');
});

t.test('random bytes over UDP and TCP do not stop the server from answering', async (t) => {
  const { server, resolver } = await serverAndResolver(t, instancesNumbering(1));
  const udp = createSocket('udp4');
  t.teardown(() => udp.close());
  const junk = fc.sample(fc.uint8Array({ maxLength: 1_000 }), 300);
  for (const bytes of junk) udp.send(bytes, server.port, '127.0.0.1');
  for (const bytes of junk.slice(0, 30)) (await open(t, server.port)).write(frame(Buffer.from(bytes)));
  t.same(await resolver.resolve4(service), ['127.0.0.1']);
});

t.test('a port in use, for TCP or UDP, fails the start and leaves nothing open', async (t) => {
  const tcp = createServer().listen(0, '127.0.0.1');
  await once(tcp, 'listening');
  t.teardown(() => tcp.close());
  const tcpPort = (tcp.address() as { port: number }).port;
  await t.rejects(newNameServer([], { port: tcpPort }).start(), NameServerAddressError);
  // A port that a name server just had is free for both. One that the system picks for UDP may be
  // in use for TCP.
  const former = newNameServer([]);
  await former.start();
  const udpPort = former.port;
  await former.stop();
  const udp = createSocket('udp4').bind(udpPort, '127.0.0.1');
  await once(udp, 'listening');
  t.teardown(() => udp.close());
  await t.rejects(newNameServer([], { port: udpPort }).start(), { code: 'NameServerAddress' });
  const again = createServer().listen(udpPort, '127.0.0.1');
  await once(again, 'listening');
  again.close();
});

t.test('stop closes open connections, and may be called twice or before start', async (t) => {
  await newNameServer([]).stop();
  const patient: Clock = { ...systemClock, after: (delayMs, callback) => systemClock.after(delayMs * 100, callback) };
  const server = await startNameServer(t, [], { clock: patient });
  const socket = await open(t, server.port);
  await Promise.all([server.stop(), closed(socket)]);
  await server.stop();
});

t.test('the server listens on IPv6', { skip: hasIPv6() ? false : 'no IPv6 on this machine' }, async (t) => {
  const server = await startNameServer(t, instancesNumbering(1), { host: '::1' });
  const resolver = new Resolver();
  resolver.setServers([`[::1]:${server.port}`]);
  t.same(await resolver.resolve6('ns.local.cnapi.internal'), ['::1']);
});

function hasIPv6(): boolean {
  return Object.values(networkInterfaces()).some((addresses) => addresses?.some(({ address }) => address === '::1'));
}

async function serverAndResolver(t: Test, instances: readonly ZoneInstance[]) {
  const server = await startNameServer(t, instances);
  const resolver = new Resolver();
  resolver.setServers([`127.0.0.1:${server.port}`]);
  return { server, resolver };
}

async function open(t: Test, port: number, localAddress = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', localAddress });
  socket.on('error', () => undefined);
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  socket.resume();
  return socket;
}

function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

function take(socket: Socket, count: number): Promise<Buffer[]> {
  const frames = new FrameReader(65_535);
  const messages: Buffer[] = [];
  return new Promise((resolve, reject) => {
    socket.once('close', () => reject(new Error('closed')));
    socket.on('data', (chunk) => {
      messages.push(...(frames.push(chunk) ?? []));
      if (messages.length >= count) resolve(messages);
    });
  });
}
