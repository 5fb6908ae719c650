import { createSocket, type RemoteInfo } from 'node:dgram';
import { once } from 'node:events';
import { decode, encode, type Packet } from 'dns-packet';
import t, { type Test } from 'tap';
import { NameResolutionError, parseServer, resolveInstances } from '../../../lib/platform/dns/resolve.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { instancesNumbering, startNameServer } from './support.ts';

const resolveAt = (port: number, options = {}) =>
  resolveInstances({
    server: `127.0.0.1:${port}`,
    datacenter: 'local',
    domain: 'cnapi.internal',
    timeoutMs: 20_000,
    clock: systemClock,
    random: systemRandom,
    ...options,
  });
const byPort = (a: { port: number }, b: { port: number }) => a.port - b.port;

for (const [count, how] of [
  [0, 'with no live instance'],
  [3, 'with their addresses in the same reply'],
  [8, 'with further queries for their addresses'],
  [60, 'over TCP'],
] as const) {
  t.test(`${count} instances are found, ${how}`, async (t) => {
    const instances = instancesNumbering(count);
    const server = await startNameServer(t, instances);
    t.same((await resolveAt(server.port)).sort(byPort), instances);
  });
}

t.test('an IPv6 instance is found', async (t) => {
  const instance = { uuid: '11111111-1111-4111-8111-111111111111', host: '::1', port: 8080 };
  const server = await startNameServer(t, [instance]);
  t.same(await resolveAt(server.port), [instance]);
});

t.test('a name of another zone is an error that says so', async (t) => {
  const server = await startNameServer(t, instancesNumbering(1));
  await t.rejects(resolveAt(server.port, { datacenter: 'elsewhere' }), {
    code: 'NameResolutionFailed',
    message: /REFUSED/,
  });
});

t.test('resolution fails at once where nobody listens, and at the timeout where nobody answers', async (t) => {
  const silent = await fakeServer(t, () => undefined);
  await t.rejects(resolveAt(1, { timeoutMs: 86_400_000 }), NameResolutionError);
  await t.rejects(resolveAt(silent, { timeoutMs: 200 }), { message: /no answer in time/ });
});

t.test('a lost datagram is sent again', async (t) => {
  let asked = 0;
  const port = await fakeServer(t, (query, send) => {
    asked += 1;
    if (asked > 1) send({ ...query, type: 'response', additionals: [] });
  });
  t.same(await resolveAt(port, { timeoutMs: 2_000 }), []);
  t.equal(asked, 2);
});

t.test('replies with a wrong id or question, queries, and invalid bytes are ignored', async (t) => {
  const port = await fakeServer(t, (query, send, sendRaw) => {
    const forged = lieAbout(query);
    send({ ...forged, id: ((query.id ?? 0) + 1) & 0xffff });
    send({ ...forged, questions: [{ name: 'example.org', type: 'SRV' }] });
    send({ ...forged, questions: [] });
    send({ ...forged, type: 'query' });
    sendRaw(Buffer.alloc(12, 0xff));
    sendRaw(Buffer.alloc(3));
    send({ ...forged, answers: [], additionals: [] });
  });
  t.same(await resolveAt(port), []);
});

t.test('the same reply is accepted when its id and question match', async (t) => {
  const port = await fakeServer(t, (query, send) => send(lieAbout(query)));
  t.same(await resolveAt(port), [{ uuid: undefined, host: '127.0.0.1', port: 666 }]);
});

t.test('replies from another port are ignored', async (t) => {
  const unknownPeer = createSocket('udp4');
  t.teardown(() => unknownPeer.close());
  const port = await fakeServer(t, (query, send, _raw, peer) => {
    unknownPeer.send(encode(lieAbout(query)), peer.port, peer.address, () =>
      send({ ...query, type: 'response', additionals: [] }),
    );
  });
  t.same(await resolveAt(port), []);
});

t.test('the address of a name server is an IP address with a port', async (t) => {
  t.same(parseServer('127.0.0.1:53'), { host: '127.0.0.1', port: 53 });
  t.same(parseServer('[::1]:8083'), { host: '::1', port: 8083 });
  for (const bad of ['', '127.0.0.1', '::1:53', 'localhost:53', '127.0.0.1:0', '127.0.0.1:70000', '127.0.0.1:5x']) {
    t.throws(() => parseServer(bad), TypeError, bad);
  }
});

t.test("without a server the system's resolver is used, and its failure is a NameResolutionError", async (t) => {
  const options = {
    datacenter: 'nowhere',
    domain: 'invalid',
    timeoutMs: 500,
    clock: systemClock,
    random: systemRandom,
  };
  await t.rejects(resolveInstances(options), NameResolutionError);
});

/** A forged reply that would be accepted from the right address. */
function lieAbout(query: Packet): Packet {
  const name = query.questions?.[0]?.name ?? '';
  return {
    ...query,
    type: 'response',
    answers: [{ name, type: 'SRV', data: { port: 666, target: 'evil.example' } }],
    additionals: [{ name: 'evil.example', type: 'A', data: '127.0.0.1' }],
  };
}

type Answerer = (
  query: Packet,
  send: (reply: Packet) => void,
  sendRaw: (bytes: Buffer) => void,
  peer: RemoteInfo,
) => void;

/** Starts a name server that answers as given, and returns its port. */
async function fakeServer(t: Test, answer: Answerer): Promise<number> {
  const socket = createSocket('udp4');
  t.teardown(() => socket.close());
  socket.on('message', (bytes, peer) => {
    const sendRaw = (reply: Buffer) => socket.send(reply, peer.port, peer.address);
    answer(decode(bytes), (reply) => sendRaw(encode(reply)), sendRaw, peer);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return socket.address().port;
}
