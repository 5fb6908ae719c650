import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import t from 'tap';
import { parseAddress } from '../../lib/client/address.ts';
import { ApiError, NoAnswerError } from '../../lib/client/client-errors.ts';
import { startNameServer } from '../platform/dns/support.ts';
import { Authority } from '../support/certificates.ts';
import { until } from '../support/until.ts';
import { failoverClient, failoverClientAt, json, refusing, scripted } from './rig.ts';

const GET = { method: 'GET', path: '/servers' } as const;
const POST = { method: 'POST', path: '/servers', body: '{}' } as const;
const NOT_NOW = { code: 'ServiceUnavailable', message: 'not now' };

t.test('after a refused connection, this and later requests use the next address', async (t) => {
  const [nobody, good] = [await refusing(), await scripted(t, (response) => json(response, 200, {}))];
  const client = failoverClient(t, [nobody, good.url]);
  t.equal((await client.call(POST)).address, good.url);
  t.equal((await client.call(GET)).status, 200);
  t.equal(good.heard.length, 2);
});

t.test('a repeatable request is sent again after a 503 and after a broken answer', async (t) => {
  const busy = await scripted(t, (response) => json(response, 503, NOT_NOW));
  const broken = await scripted(t, (response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('half');
    setImmediate(() => response.destroy());
  });
  const good = await scripted(t, (response) => json(response, 200, { ok: true }));
  const answer = await failoverClient(t, [busy.url, broken.url, good.url]).call(GET);
  t.equal(answer.text, '{"ok":true}');
  t.strictSame([busy.heard.length, broken.heard.length, good.heard.length], [1, 1, 1]);
});

t.test('a request on a kept connection that ends is repeated at once at the same address', async (t) => {
  const closing = await scripted(t, (response, { method }) =>
    closing.heard.length === 2
      ? response.destroy()
      : json(response, method === 'DELETE' ? 404 : 200, { code: 'ResourceNotFound' }),
  );
  const other = await scripted(t, (response) => json(response, 200, {}));
  const client = failoverClient(t, [closing.url, other.url]);
  await client.call(GET);
  const error = await client.call({ method: 'DELETE', path: '/tickets/1' }).catch((thrown: unknown) => thrown);
  t.ok(error instanceof ApiError && error.mayBeDone, 'the first attempt may have done it');
  t.strictSame([closing.heard.length, other.heard.length], [3, 0]);
});

t.test('after a 503 that says that nothing was changed, a later refusal is final', async (t) => {
  const gone = await scripted(t, (response) => json(response, 404, { code: 'ResourceNotFound', message: 'none' }));
  const isDoneAfter = async (code: string) => {
    const busy = await scripted(t, (response) => json(response, 503, { code, message: 'not now' }));
    const deletion = failoverClient(t, [busy.url, gone.url]).call({ method: 'DELETE', path: '/tickets/1' });
    const error = await deletion.catch((thrown: unknown) => thrown);
    t.ok(error instanceof ApiError && error.statusCode === 404 && busy.heard.length === 1);
    return (error as ApiError).mayBeDone;
  };
  for (const code of ['DatabaseBusy', 'InstanceDraining', 'TooManyTickets'])
    t.equal(await isDoneAfter(code), false, code);
  for (const code of ['ServiceUnavailable', 'ofAProxy']) t.equal(await isDoneAfter(code), true, code);
});

t.test('a request that is not repeatable reaches at most one instance', async (t) => {
  const good = await scripted(t, (response) => json(response, 200, {}));
  const broken = await scripted(t, (response) => response.destroy());
  const lost = await failoverClient(t, [broken.url, good.url])
    .call(POST)
    .catch((error: unknown) => error);
  t.ok(lost instanceof NoAnswerError && lost.mayHaveArrived, 'the error says that it may have been done');
  const busy = await scripted(t, (response) => json(response, 503, NOT_NOW));
  await t.rejects(failoverClient(t, [busy.url, good.url]).call(POST), { code: 'ServiceUnavailable', statusCode: 503 });
  t.equal(good.heard.length, 0);
  await failoverClient(t, [broken.url, good.url]).call({ ...POST, repeatable: true });
  t.equal(good.heard.length, 1, 'a repeatable request is sent again');
});

t.test('an error answer is thrown with its code, address and request id', async (t) => {
  const body = {
    code: 'InvalidParameters',
    message: 'no',
    errors: [{ field: 'limit', code: 'Invalid', message: 'is 0' }],
  };
  const refuses = await scripted(t, (response) => json(response, 409, body, { 'retry-after': '100' }));
  const good = await scripted(t, (response) => json(response, 200, {}));
  const error = await failoverClient(t, [refuses.url, good.url])
    .call(GET)
    .catch((thrown: unknown) => thrown);
  t.ok(error instanceof ApiError);
  t.match(error, { ...body, statusCode: 409, address: refuses.url, requestId: 'the-request', retryAfterSeconds: 100 });
  t.equal(good.heard.length, 0, 'no other instance is asked');
});

t.test('429 is retried after a short Retry-After, for any request', async (t) => {
  let count = 0;
  const limited = await scripted(t, (response) =>
    ++count === 1
      ? json(response, 429, { code: 'TooManyRequests', message: 'slower' }, { 'retry-after': '0' })
      : json(response, 200, {}),
  );
  t.equal((await failoverClient(t, [limited.url]).call(POST)).status, 200);
  const shut = await scripted(t, (response) =>
    json(response, 429, { code: 'TooManyRequests', message: 'slower' }, { 'retry-after': '600' }),
  );
  await t.rejects(failoverClient(t, [shut.url]).call(GET), { code: 'TooManyRequests', retryAfterSeconds: 600 });
});

t.test('when no address ever answered, the error names each address at once', async (t) => {
  const urls = [await refusing(), await refusing()];
  const error = await failoverClient(t, urls)
    .call(GET)
    .catch((thrown: unknown) => thrown);
  t.ok(error instanceof NoAnswerError && !error.mayHaveArrived);
  for (const url of urls) t.match((error as Error).message, `${url}: connection refused`);
});

t.test('an instance that answered before is waited for', async (t) => {
  const first = await scripted(t, (response) => json(response, 200, {}));
  const client = failoverClient(t, [first.url]);
  await client.call(GET);
  await first.stop();
  const waiting = client.call({ ...GET, patienceMs: 60_000 });
  const second = await scripted(t, (response) => json(response, 200, { second: true }));
  client.learn([{ secure: false, host: '127.0.0.1', name: '127.0.0.1', port: Number(new URL(second.url).port) }]);
  t.equal((await waiting).address, second.url);
});

t.test('the token is sent with each request and does not follow a redirect', async (t) => {
  const other = await scripted(t, (response) => json(response, 200, {}));
  const moved = await scripted(t, (response) => json(response, 302, {}, { location: other.url }));
  await t.rejects(failoverClient(t, [moved.url], 'cnapi_secret').call(GET), {
    code: 'UnexpectedAnswer',
    statusCode: 302,
  });
  t.equal(moved.heard[0]?.headers.authorization, 'Bearer cnapi_secret');
  t.equal(other.heard.length, 0);
});

t.test('an aborted request ends at once', async (t) => {
  const mute = await scripted(t, () => undefined);
  const stop = new AbortController();
  const waiting = failoverClient(t, [mute.url]).call({ ...GET, signal: stop.signal });
  await until(() => mute.heard.length > 0, 'the request');
  stop.abort(new Error('enough'));
  await t.rejects(waiting, { message: 'enough' });
});

t.test('an instance that does not answer is given up after its timeout', async (t) => {
  const mute = await scripted(t, () => undefined);
  const good = await scripted(t, (response) => json(response, 200, {}));
  t.equal((await failoverClient(t, [mute.url, good.url]).call({ ...GET, withinMs: 1_000 })).address, good.url);
});

t.test('TLS certificates are checked against the name given, also for learnt instances', async (t) => {
  const authority = await Authority.create(t);
  const ca = readFileSync(authority.caFile, 'utf8');
  const at = async (names: string) =>
    scripted(t, (response) => json(response, 200, {}), await authority.issue({ names: `DNS:${names}` }));
  const zone = { datacenter: 'east', domain: 'example.com' };
  const [named, other, unknownHost] = [
    await at('cnapi.east.example.com'),
    await at('cnapi.east.example.com'),
    await at('elsewhere.example.com'),
  ];
  const here = { uuid: crypto.randomUUID(), host: '127.0.0.1', port: Number(new URL(named.url).port) };
  const names = await startNameServer(t, [here], { zone });
  const client = failoverClientAt(t, { dns: `127.0.0.1:${names.port}`, ...zone }, { ca });
  client.learn([unknownHost, named, other].map(({ url }) => parseAddress(url)));
  t.match((await client.call(GET)).address, /^https:..cnapi\.east\.example\.com:/);
  t.equal((await client.call(GET)).status, 200, 'again, at the instance that answered');
  await named.stop();
  t.equal((await client.call(GET)).address, other.url, 'an instance known only by learning');
  await other.stop();
  const reason = await client.call({ ...GET, patienceMs: 0 }).catch((error: unknown) => String(error));
  t.match(reason, /127\.0\.0\.1 is not in the cert's list|does not match certificate's altnames/);
  t.equal(unknownHost.heard.length, 0, 'a certificate for another name is refused');

  const local = await at('localhost');
  const byUrl = failoverClientAt(t, { urls: [local.url.replace('127.0.0.1', 'localhost')] }, { ca });
  byUrl.learn([parseAddress(local.url)]);
  t.match((await byUrl.call(GET)).address, /localhost/);
});

t.test('an aborted request ends also while names are resolved', async (t) => {
  const mute = createSocket('udp4');
  mute.bind(0, '127.0.0.1');
  await once(mute, 'listening');
  t.teardown(() => void mute.close());
  const client = failoverClientAt(t, {
    dns: `127.0.0.1:${mute.address().port}`,
    datacenter: 'east',
    domain: 'example.com',
  });
  const stop = new AbortController();
  const waiting = client.call({ ...GET, signal: stop.signal });
  await Promise.race([once(mute, 'message'), waiting]);
  stop.abort(new Error('enough'));
  await t.rejects(waiting, { message: 'enough' });
});

t.test('a read without an answer is not reported as possibly done', async (t) => {
  const broken = await scripted(t, (response) => response.destroy());
  const lost = await failoverClient(t, [broken.url])
    .call(GET)
    .catch((error: unknown) => error);
  t.ok(lost instanceof NoAnswerError && !lost.mayHaveArrived);
});
