import { readFileSync } from 'node:fs';
import t from 'tap';
import { freshZone } from '../../support/apps.ts';
import { Authority, askOverTls } from '../../support/certificates.ts';
import { CuttableProxy } from '../../support/cuttable-proxy.ts';
import { until } from '../../support/until.ts';

/** Metrics of the client library; the page has one line for each family. */
const FAMILIES = ['process_', 'nodejs_'];

t.test('docs/metrics.md lists every metric of GET /metrics and no other', async (t) => {
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue();
  const zone = await freshZone(t);
  const { url } = await zone.startApp({ tlsCertFile: certFile, tlsKeyFile: keyFile });
  const { text } = await askOverTls(authority.caFile, `${url}/metrics`);
  const served = [...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name ?? '');
  t.ok(served.length > 60, 'the page lists most metrics');
  const own = served.filter((name) => !FAMILIES.some((family) => name.startsWith(family)));
  const page = readFileSync(new URL('../../../docs/metrics.md', import.meta.url), 'utf8');
  const cells = [...page.matchAll(/^\| (`[^|]*`) \|/gm)].map(([, cell]) => cell ?? '');
  const told = cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name ?? ''));
  t.same(told.toSorted(), own.toSorted());
});

t.test('cnapi_database_healthy is 1 while the database answers and 0 while it does not', async (t) => {
  const zone = await freshZone(t);
  const { hostname: host, port } = new URL(zone.url);
  const proxy = await CuttableProxy.start({ host: '127.0.0.1', port: 0, target: { host, port: Number(port) } });
  const databaseUrl = Object.assign(new URL(zone.url), { hostname: '127.0.0.1', port: String(proxy.port) }).href;
  const { url } = await zone.startApp({ databaseUrl });
  const healthy = async () => {
    const page = await (await fetch(`${url}/metrics`)).text();
    return /^cnapi_database_healthy (\d)$/m.exec(page)?.[1];
  };
  t.equal(await healthy(), '1');
  await proxy.stop();
  await until(async () => (await healthy()) === '0', 'the metric to be 0');
  t.equal((await fetch(`${url}/ready`)).status, 503);
});
