import { once } from 'node:events';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { BodyCosts } from '../../../../lib/control/http/limits/body-costs.ts';
import type { CallerLimits } from '../../../../lib/control/http/limits/caller-limits.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { BURST_BYTES, BYTES_PER_MS, VALUE_BYTES } from '../../../../lib/protocol/link/link-quota.ts';
import { until } from '../../../support/until.ts';
import { type Parts, raw, SERVER, startApi } from '../support.ts';
import { startWithTokens as start } from '../with-tokens.ts';

const agent = (tokenUuid: string, serverUuid?: string) =>
  ({ name: 'a', roles: ['agent'], tokenUuid, ...(serverUuid && { serverUuid }) }) as const;

t.test('a caller is charged for the bytes and values of its bodies', async (t) => {
  const costs = new BodyCosts({ requestsPerSecond: 500 });
  const caller = { actor: agent('t', SERVER), address: '10.0.0.1' };
  const refused = { code: 'TooManyRequests', statusCode: 429, retryAfterSeconds: 1 };
  costs.charge(caller, { bytes: BURST_BYTES, values: 0 }, 0);
  costs.check(caller, 0);
  costs.charge(caller, { bytes: 0, values: BYTES_PER_MS / VALUE_BYTES }, 0);
  t.throws(() => costs.check(caller, 0), refused);
  costs.check({ ...caller, actor: agent('other', SERVER) }, 0);
  costs.check({ ...caller, actor: agent('t') }, 0);
  costs.check(caller, 1);
  t.equal(costs.refused, 1);
});

t.test('callers with a token for any server, or none, are charged by their address', async (t) => {
  const charge = (costs: BodyCosts, address: string, now: number) => {
    try {
      const caller = { actor: agent('t'), address };
      costs.check(caller, now);
      costs.charge(caller, { bytes: BURST_BYTES * 2, values: 0 }, now);
      return true;
    } catch {
      return false;
    }
  };
  const costs = new BodyCosts({ requestsPerSecond: 500 });
  t.same(
    ['10.0.0.1', '10.0.0.1', '::ffff:10.0.0.1', '10.0.0.2'].map((address) => charge(costs, address, 0)),
    [true, false, false, true],
  );
  const faster = new BodyCosts({ requestsPerSecond: 5000 });
  t.same(
    [0, 0, 0, 0, 0, 0, 0].map((now) => charge(faster, '10.0.0.1', now)),
    [true, true, true, true, true, true, false],
    'in proportion to requestsPerSecond',
  );
  const unlimited = new BodyCosts({ requestsPerSecond: 0 });
  t.ok(charge(unlimited, '10.0.0.1', 0) && charge(unlimited, '10.0.0.1', 0));
});

t.test('users and clients who sign are charged each, behind one address or behind several', async (t) => {
  const signer = (uuid: string) =>
    ({ name: 'a', roles: [], principal: { kind: 'client', uuid, name: 'a', publicKey: 'pem' } }) as const;
  const costs = new BodyCosts({ requestsPerSecond: 500 });
  const web = { actor: signer('web'), address: '10.0.0.1' };
  costs.charge(web, { bytes: BURST_BYTES * 2, values: 0 }, 0);
  for (const address of ['10.0.0.1', '10.0.0.2']) t.throws(() => costs.check({ ...web, address }, 0), address);
  costs.check({ ...web, actor: signer('db') }, 0);
  costs.check({ ...web, actor: undefined }, 0);
});

t.test('wide bodies of an agent are refused with 429, and its heartbeats are not', async (t) => {
  const { call, as, limits, addServer } = await start(t, {}, { clock: { ...systemClock, now: () => 0 } });
  await addServer(SERVER);
  const bound = await as('agent', SERVER);
  const other = await as('agent');
  const wide = Object.fromEntries(Array.from({ length: 24_000 }, (_, at) => [`k${at}`, 0]));
  const post = (path: string, body: unknown, { headers } = bound) =>
    call('POST', `/servers/${SERVER}/${path}`, body, headers);
  const statuses: number[] = [];
  for (let each = 0; each < 5; each += 1) statuses.push((await post('events/status', wide)).status);
  t.same(statuses, [204, 204, 204, 429, 429]);
  const refused = await post('sysinfo', { sysinfo: { UUID: SERVER, filler: 'x'.repeat(2_000) } });
  t.match(refused.body, { code: 'TooManyRequests' });
  t.equal(refused.headers.get('retry-after'), '1');
  t.equal((await post('events/heartbeat', { small: true })).status, 204);
  t.equal((await post('events/status', wide, other)).status, 204, 'another caller has a quota of its own');
  t.equal(limits.bodies.refused, 3);
});

t.test('with open access bodies are limited in size only, because all callers share one address', async (t) => {
  const { call, limits, addServer } = await startApi(t, {
    config: { requestsPerSecond: 1 },
    clock: { ...systemClock, now: () => 0 },
  });
  await addServer(SERVER);
  const wide = (members: number) => Object.fromEntries(Array.from({ length: members }, (_, at) => [`k${at}`, 0]));
  const post = async (body: unknown) => (await call('POST', `/servers/${SERVER}/events/status`, body)).status;
  for (let each = 0; each < 5; each += 1) t.equal(await post(wide(24_000)), 204);
  t.equal(await post(wide(60_000)), 413);
  t.equal(limits.bodies.refused, 0);
});

t.test('bodies that are refused are charged', async (t) => {
  const { url, as, addServer } = await start(t, {}, { clock: { ...systemClock, now: () => 0 } });
  await addServer(SERVER);
  const filler = ' '.repeat(1024 * 1024 - 102_000);
  const tooMany = Buffer.from(`${filler}{"a":[${'0,'.repeat(50_000)}0]}`);
  const json = 'application/json';
  // With how many the caller has used its burst of 32 MiB.
  const shapes: [name: string, body: Buffer, headers: object, status: number, most: number][] = [
    ['too many values in few bytes of gzip', gzipSync(tooMany), { 'content-encoding': 'gzip' }, 413, 4],
    ['too many values', tooMany, {}, 413, 4],
    ['no UTF-8', Buffer.alloc(1024 * 1024, 0xff), {}, 400, 34],
    ['no gzip', Buffer.alloc(1000, 1), { 'content-encoding': 'gzip' }, 400, 34],
    ['gzip of too many bytes', gzipSync(Buffer.alloc(9_000_000)), { 'content-encoding': 'gzip' }, 413, 34],
  ];
  for (const [name, body, headers, status, most] of shapes) {
    const { token } = await as('agent', SERVER);
    const post = async () => {
      const authorization = `Bearer ${token}`;
      const all = { 'content-type': json, authorization, ...headers };
      const answer = await fetch(`${url}/servers/${SERVER}/sysinfo`, {
        method: 'POST',
        headers: all,
        body: Uint8Array.from(body),
      });
      await answer.arrayBuffer();
      return answer.status;
    };
    let last = status;
    let sent = 0;
    for (; last === status && sent <= most; sent += 1) last = await post();
    t.equal(last, 429, `${name}: ${sent} until the first 429`);
  }
});

t.test('each piece of a body is charged, and a body of too many pieces is refused', async (t) => {
  const { post, limits } = await startPieces(t);
  const broken = /^400 .*Invalid JSON/s;
  t.match(await post(8_000), broken, 'a quarter of the burst of 32 MiB');
  t.match(await post(200_000), /^413 .*The body comes in more than 16384 pieces/s, 'a half');
  t.match(await post(16_000), /^429 .*exceed this caller's rate limit/s);
  t.equal(limits.bodies.refused, 1);
});

t.test('a small body in few pieces is free, and in many it is not', async (t) => {
  const { post, limits } = await startPieces(t);
  const charged = chargesTo(limits);
  t.match(await post(16), /^400 /);
  t.equal(charged(), 0);
  t.match(await post(1000), /^400 /);
  t.equal(charged(), 1000 * (1024 + 1));
});

/** Returns the bytes charged since this call. */
function chargesTo({ bodies }: CallerLimits): () => number {
  let charged = 0;
  const charge = bodies.charge.bind(bodies);
  bodies.charge = (caller, size, now) => {
    charged += size.bytes;
    charge(caller, size, now);
  };
  return () => charged;
}

const openStream = {
  follow: async (_filter: unknown, _after: unknown, signal: AbortSignal) =>
    (async function* () {
      yield { position: '1', event: undefined };
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    })(),
} as unknown as Parts['events'];

t.test('a body that a stream of events does not take is dropped and charged while it is open', async (t) => {
  const clock = { ...systemClock, now: () => 0 };
  const { port, as, limits } = await start(t, { requestsPerSecond: 500 }, { clock, parts: { events: openStream } });
  const { token } = await as('reader');
  const charged = chargesTo(limits);
  const follow = (body: string) => {
    const head = `GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nTransfer-Encoding: chunked`;
    const socket = connect(port, '127.0.0.1', () => socket.write(`${head}\r\n\r\n${body}`));
    t.teardown(() => socket.destroy());
    socket.on('error', () => undefined);
    return socket;
  };
  const small = follow('1\r\n \r\n'.repeat(5_000));
  const [answer] = await once(small, 'data');
  t.match(String(answer), /^HTTP\/1.1 200 /);
  await until(() => charged() >= 4_900 * 1025, 'the pieces to be charged');
  t.not(small.readyState, 'closed', 'the stream stays open');
  for (let sent = 0; sent < 4; sent += 1) {
    const large = follow('1\r\n \r\n'.repeat(100_000)).resume();
    // Its connection is reset, so `once` of node:events would reject.
    await new Promise((resolve) => large.once('close', resolve));
  }
  const [refusal] = await once(follow('1\r\n \r\n'), 'data');
  t.match(String(refusal), /^HTTP\/1.1 429 .*TooManyRequests/s, 'the caller has used up its quota');
});

/**
 * `post` sends a body of blanks in so many pieces of one byte, and returns the answer's status and
 * body.
 */
async function startPieces(t: Parameters<typeof start>[0]) {
  const { port, as, addServer, limits } = await start(t, {}, { clock: { ...systemClock, now: () => 0 } });
  await addServer(SERVER);
  const { token } = await as('agent', SERVER);
  const head = [
    `POST /servers/${SERVER}/sysinfo HTTP/1.1`,
    'Host: localhost',
    `Authorization: Bearer ${token}`,
    'Content-Type: application/json',
    'Transfer-Encoding: chunked',
    'Connection: close',
  ].join('\r\n');
  const post = async (pieces: number) => {
    const answer = await raw(port, `${head}\r\n\r\n${'1\r\n \r\n'.repeat(pieces)}0\r\n\r\n`);
    return answer.slice('HTTP/1.1 '.length);
  };
  return { post, limits };
}

t.test('a body of an unknown type is refused before it is read', async (t) => {
  const { port, as } = await start(t);
  const { token } = await as('operator');
  const head = `POST /loglevel HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n`;
  t.match(await raw(port, `${head}Authorization: Bearer ${token}\r\n\r\n`, /"code"/), /^HTTP\/1.1 415 /);
});

t.test('the rest of a refused body, which is read and dropped, is charged', async (t) => {
  const { port, call, as, addServer } = await start(t, {}, { clock: { ...systemClock, now: () => 0 } });
  await addServer(SERVER);
  const { headers } = await as('agent', SERVER);
  const wide = { filler: 'x'.repeat(2_000) };
  const bytes = 7 * 1024 * 1024;
  const head = [
    `POST /servers/${SERVER}/sysinfo HTTP/1.1`,
    'Host: localhost',
    'Content-Type: application/json',
    `Content-Length: ${bytes}`,
    `Authorization: ${headers.authorization}`,
    '',
    '',
  ].join('\r\n');
  const send = () => raw(port, head + ' '.repeat(bytes));
  const post = async () => (await call('POST', `/servers/${SERVER}/events/status`, wide, headers)).status;
  t.match(await send(), /^HTTP\/1.1 413 /);
  t.equal(await post(), 204, 'within the burst of 32 MiB');
  // A slow machine reads less of each within the time for it.
  let status = 204;
  for (let sent = 1; sent < 200 && status === 204; sent += 1) {
    await send();
    status = await post();
  }
  t.equal(status, 429);
});
