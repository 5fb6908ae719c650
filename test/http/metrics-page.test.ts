import { readFileSync } from 'node:fs';
import t from 'tap';
import { freshZone } from '../support/apps.ts';
import { Authority, askOverTls } from '../support/certificates.ts';

/** What a client library brings along; the page has a line for each family. */
const FAMILIES = ['process_', 'nodejs_'];

t.test('docs/metrics.md has every metric of GET /metrics, and no other', async (t) => {
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue();
  const zone = await freshZone(t);
  const { url } = await zone.startApp({ tlsCertFile: certFile, tlsKeyFile: keyFile });
  const { text } = await askOverTls(authority.caFile, `${url}/metrics`);
  const served = [...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name ?? '');
  t.ok(served.length > 60, 'it is the list');
  const own = served.filter((name) => !FAMILIES.some((family) => name.startsWith(family)));
  const page = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
  const cells = [...page.matchAll(/^\| (`[^|]*`) \|/gm)].map(([, cell]) => cell ?? '');
  const told = cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name ?? ''));
  t.same(told.toSorted(), own.toSorted());
});
