/** What one caller may have open at once, and how much it may write to the log. */
import { Readable } from 'node:stream';
import t from 'tap';
import { RequestLog } from '../../../../lib/control/http/limits/request-log.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';
import { until } from '../../../support/until.ts';
import { type Parts, SERVER, startApi } from '../support.ts';
import { startWithTokens } from '../with-tokens.ts';

const events = {
  follow: async (_filter: unknown, _after: unknown, signal: AbortSignal) => {
    const stream = new Readable({ objectMode: true, read() {} });
    signal.addEventListener('abort', () => stream.push(null));
    return stream;
  },
} as unknown as Parts['events'];

t.test('one token cannot take all event streams; another token still gets one', async (t) => {
  const api = await startWithTokens(t, { eventStreamsPerCaller: 3 }, { parts: { events } });
  const [one, other] = [await api.as('reader'), await api.as('reader')];
  const open = async (headers: Record<string, string>) => {
    const abort = new AbortController();
    t.teardown(() => abort.abort());
    const response = await fetch(`${api.url}/events`, { headers, signal: abort.signal });
    return { status: response.status, retryAfter: response.headers.get('retry-after'), response, abort };
  };
  const streams = [];
  for (let index = 0; index < 3; index += 1) streams.push(await open(one.headers));
  t.same(
    streams.map(({ status }) => status),
    [200, 200, 200],
  );
  const refused = await open(one.headers);
  t.match(refused, { status: 429, retryAfter: '1' });
  t.match(await refused.response.json(), { code: 'TooManyRequests', message: /3 streams .* \(eventStreamsPerCaller/ });
  t.equal((await open(other.headers)).status, 200);
  t.equal(api.limits.quotas.refused, 1);
  streams[0]?.abort.abort();
  await until(async () => (await open(one.headers)).status === 200, 'a free place');
});

t.test('waits are limited per token, or per address without a token', async (t) => {
  const networks = [{ text: '127.0.0.0/8', roles: ['operator' as const] }];
  const api = await startWithTokens(t, { waitsPerCaller: 2, trustedNetworks: networks });
  const { headers } = await api.as('operator');
  await api.addServer(SERVER);
  const { id } = (await api.call('POST', `/servers/${SERVER}/nop`, {})).body;
  const abort = new AbortController();
  t.teardown(() => abort.abort());
  const wait = (more: object = {}) =>
    void fetch(`${api.url}/tasks/${id}/wait?timeout=3600`, { signal: abort.signal, ...more }).catch(() => undefined);
  wait();
  wait();
  await until(() => api.tasks.waiting === 2, 'both to wait');
  t.match(await api.call('GET', `/tasks/${id}/wait`), { status: 429, body: { message: /2 waits .*waitsPerCaller/ } });
  t.match(
    await api.call('POST', `/servers/${SERVER}/execute`, { script: 'true' }),
    { status: 429 },
    'execute counts as a wait',
  );
  t.equal((await api.call('GET', `/tasks/${id}`)).status, 200, 'a request that does not wait is answered');
  wait({ headers });
  await until(() => api.tasks.waiting === 3, 'the other caller to wait');
  abort.abort();
  await until(() => api.tasks.waiting === 0, 'no wait to be left');
  const last = new AbortController();
  t.teardown(() => last.abort());
  wait({ signal: last.signal });
  await until(() => api.tasks.waiting === 1, 'the new wait');
});

t.test('thousands of requests with long paths write little to the log', async (t) => {
  const api = await startApi(t, { config: { logLinesPerSource: 20 } });
  const path = `/tasks/${'x'.repeat(8000)}`;
  for (let round = 0; round < 20; round += 1)
    await Promise.all(Array.from({ length: 50 }, () => api.call('GET', path)));
  const lines = api.logged.filter(({ msg }) => msg === 'request');
  t.ok(lines.length >= 40 && lines.length < 1000, `${lines.length} lines`);
  t.ok(Math.max(...lines.map((line) => JSON.stringify(line).length)) < 1000, 'each line is short');
  t.match(lines[0], { path: /^\/tasks\/x+… \(8007 characters\)$/ });
  t.equal(api.limits.requestLog.unlogged, 1000 - lines.length);
  await api.listener.stop();
  // There are several summaries if the requests took more than ten seconds.
  const summaries = api.logged.filter(({ sources }) => sources !== undefined);
  t.match(summaries[0], { level: 'warn', msg: /logLinesPerSource/ });
  const unlogged = summaries.map(({ sources }) => (sources as Record<string, number>)['127.0.0.1'] ?? 0);
  t.equal(
    unlogged.reduce((sum, count) => sum + count, 0),
    1000 - lines.length,
  );
});

t.test('a summary names the busiest sources and adds up the others', async (t) => {
  const logged: Record<string, unknown>[] = [];
  const requests = new RequestLog({ linesPerSecond: 1, clock: systemClock, log: recordingLogger(logged) });
  for (let index = 0; index < 2000; index += 1)
    for (let line = 0; line < 3; line += 1) requests.mayWrite(`10.1.${index >> 8}.${index & 255}`);
  for (let line = 0; line < 50; line += 1) requests.mayWrite('::ffff:10.1.0.7');
  requests.stop();
  requests.stop();
  t.equal(logged.length, 1);
  const [{ sources, others }] = logged as [{ sources: Record<string, number>; others: number }];
  t.equal(Object.keys(sources).length, 10);
  t.ok((sources['10.1.0.7'] ?? 0) >= 50);
  t.equal(
    Object.values(sources).reduce((sum, count) => sum + count, others),
    requests.unlogged,
  );
});
