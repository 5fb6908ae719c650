import t from 'tap';
import { counter, gauge, type Metric } from '../../../lib/control/metrics/metric.ts';
import { Metrics } from '../../../lib/control/metrics/metrics.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const BUILD = { version: '1.0.0', node: 'v24', datacenter: 'testdc', cnapiUuid: 'i', host: 's' };

function metricsOf(metrics: readonly Metric[], clock = new ManualClock()) {
  const all = new Metrics({ build: BUILD, clock });
  all.add(metrics);
  return { lines: async () => (await all.read()).content.split('\n'), clock, all };
}

const servers = (fetch: () => Promise<Record<string, number>>): Metric => ({
  kind: 'labelled gauge',
  name: 'servers',
  help: 'Servers',
  label: 'status',
  fetch,
});

const waits = (take: () => Promise<readonly number[]>): Metric => ({
  kind: 'histograms',
  histograms: { wait_seconds: { help: 'Waits', buckets: [0.5, 5, 15] } },
  take: async () => ({ wait_seconds: await take() }),
});

t.test('gauges and counters are read at each scrape', async (t) => {
  let count = 1;
  const { lines } = metricsOf([gauge('agents', 'Agents', () => count), counter('sent_total', 'Sent', () => count)]);
  for (const line of ['cnapi_agents 1', 'cnapi_sent_total 1', '# TYPE cnapi_sent_total counter'])
    t.ok((await lines()).includes(line), line);
  count = 5;
  for (const line of ['cnapi_agents 5', 'cnapi_sent_total 5']) t.ok((await lines()).includes(line), line);
});

t.test('build info names the instance once', async (t) => {
  const { lines } = metricsOf([]);
  const info = 'cnapi_build_info{version="1.0.0",node="v24",datacenter="testdc",host="s",cnapi_uuid="i"} 1';
  t.ok((await lines()).includes(info));
});

t.test('two metrics of one name are refused', (t) => {
  t.throws(() => metricsOf([gauge('agents', 'Agents', () => 1), gauge('agents', 'Agents', () => 2)]));
  t.end();
});

t.test('what a histogram takes is observed once', async (t) => {
  let taken: number[] = [0.2, 30];
  const { lines } = metricsOf([waits(async () => taken.splice(0))]);
  for (const line of ['cnapi_wait_seconds_bucket{le="0.5"} 1', 'cnapi_wait_seconds_count 2'])
    t.ok((await lines()).includes(line), line);
  taken = [7];
  const second = await lines();
  for (const line of ['cnapi_wait_seconds_bucket{le="15"} 2', 'cnapi_wait_seconds_count 3'])
    t.ok(second.includes(line), line);
});

t.test('concurrent scrapes share one fetch, and both show it', async (t) => {
  const { promise, resolve } = Promise.withResolvers<Record<string, number>>();
  let fetches = 0;
  const { lines, clock } = metricsOf([
    servers(() => {
      fetches += 1;
      return promise;
    }),
  ]);
  const scrapes = [lines(), lines()];
  resolve({ running: 3 });
  for (const scrape of scrapes) t.ok((await scrape).includes('cnapi_servers{status="running"} 3'));
  await lines();
  t.equal(fetches, 1, 'a third one that comes soon is answered by the same fetch');
  await clock.advance(5_000);
  await lines();
  t.equal(fetches, 2);
});

t.test('a value that is fetched too slowly is missing, and hides no other metric', async (t) => {
  const stuck = new Promise<never>(() => {});
  let fetched: Promise<Record<string, number>> = Promise.resolve({ running: 1 });
  let taken: Promise<number[]> = Promise.resolve([7]);
  const { lines, clock } = metricsOf([servers(() => fetched), waits(() => taken), gauge('agents', 'Agents', () => 2)]);
  t.ok((await lines()).includes('cnapi_servers{status="running"} 1'));
  fetched = stuck;
  taken = stuck;
  await clock.advance(5_000);
  const slow = lines();
  await clock.advance(1_000);
  const page = await slow;
  t.notOk(
    page.some((line) => line.startsWith('cnapi_servers{')),
    'an old count is not shown as a new one',
  );
  t.ok(page.includes('cnapi_wait_seconds_count 1'), 'what was observed before stays');
  t.ok(page.includes('cnapi_agents 2'));
});

t.test('a value whose fetch fails is missing, and is fetched again', async (t) => {
  let isBroken = true;
  const { lines } = metricsOf([
    servers(async () => {
      if (isBroken) throw new Error('no database');
      return { running: 1 };
    }),
  ]);
  t.notOk((await lines()).some((line) => line.startsWith('cnapi_servers{')));
  isBroken = false;
  t.ok((await lines()).includes('cnapi_servers{status="running"} 1'));
});
