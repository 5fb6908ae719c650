/** What Node does with the bytes of one read behind the request that ends its connection. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { BURST_BYTES } from '../../../../lib/protocol/link/link-quota.ts';
import { until } from '../../../support/until.ts';
import { raw, startApi } from '../support.ts';
import { startWithTokens } from '../with-tokens.ts';

const STARTED = 'http.server.request.start';
/** Refused because it has no Host header. */
const REFUSED = 'GET / HTTP/1.1\r\n\r\n';

/** Counts the requests for which Node makes objects on this port. */
function requestsOn(t: Test, port: number): () => number {
  let count = 0;
  const onStart = (message: unknown) => {
    const address = (message as { server: Server }).server.address();
    if (typeof address === 'object' && address?.port === port) count += 1;
  };
  subscribe(STARTED, onStart);
  t.teardown(() => unsubscribe(STARTED, onStart));
  return () => count;
}

t.test('of thousands of requests in one read, no more than the permitted number is received', async (t) => {
  const { port, listener } = await startApi(t);
  const count = requestsOn(t, port);
  await raw(port, REFUSED.repeat(3_600));
  t.ok(count() > 0 && count() <= 17, `${count()} requests`);
  await until(() => listener.unanswered === 0, 'all requests to end');
});

t.test('a request that is dropped counts towards the rate limit of its source', async (t) => {
  const clock = { ...systemClock, now: () => 0 };
  const { port } = await startWithTokens(t, { requestsPerSecond: 20 }, { clock });
  const ping = 'GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
  t.match(await raw(port, ping), /^HTTP\/1.1 200 /);
  for (let sent = 0; sent < 5; sent += 1) await raw(port, REFUSED.repeat(16));
  t.match(await raw(port, ping), /^HTTP\/1.1 429 /);
});

t.test('a refused body of a source over its limit is not parsed', async (t) => {
  const clock = { ...systemClock, now: () => 0 };
  const { port, limits } = await startWithTokens(t, { requestsPerSecond: 500 }, { clock });
  const source = { actor: undefined, address: '127.0.0.1' };
  const chunks = '1\r\n \r\n'.repeat(5_000);
  const post = 'POST /ping HTTP/1.1\r\nHost: evil.example\r\nTransfer-Encoding: chunked\r\n\r\n';
  const charges: number[] = [];
  const charge = limits.bodies.charge.bind(limits.bodies);
  limits.bodies.charge = (caller, size, now) => {
    charges.push(size.bytes);
    charge(caller, size, now);
  };
  t.match(await raw(port, `${post}${chunks}0\r\n\r\n`), /^HTTP\/1.1 403 /);
  t.ok(charges.length > 4_000, 'it is dropped in pieces and charged');
  limits.bodies.charge(source, { bytes: 2 * BURST_BYTES, values: 0 }, 0);
  charges.length = 0;
  const refused = connect(port, '127.0.0.1', () => refused.write(post + chunks));
  let text = '';
  refused.on('data', (chunk) => (text += chunk)).on('error', () => undefined);
  await new Promise((resolve) => refused.once('close', resolve));
  t.match(text, /^HTTP\/1.1 403 /);
  t.same(charges, [], 'no piece is received');
});

t.test('the rest of a refused body is not read from a source that exceeds its limit with it', async (t) => {
  const clock = { ...systemClock, now: () => 0 };
  const { port, limits, as } = await startWithTokens(t, { requestsPerSecond: 500 }, { clock });
  const { token } = await as('reader');
  const source = { actor: undefined, address: '127.0.0.1' };
  limits.bodies.charge(source, { bytes: BURST_BYTES, values: 0 }, 0);
  let pieces = 0;
  const charge = limits.bodies.charge.bind(limits.bodies);
  limits.bodies.charge = (...one) => {
    pieces += 1;
    charge(...one);
  };
  const head = `POST /loglevel HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n`;
  const chunks = '1\r\n \r\n'.repeat(5_000);
  t.match(await raw(port, `${head}Transfer-Encoding: chunked\r\n\r\n${chunks}`), /^HTTP\/1.1 403 /);
  t.equal(pieces, 1);
});
