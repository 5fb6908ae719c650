/** Every error of the routes of /pushy has the form of Chef, wherever it comes from. */
import { request } from 'node:http';
import t from 'tap';
import type { AuditRecord } from '../../../lib/protocol/api/audit.ts';
import { until } from '../../support/until.ts';
import { asked, JOBS, startAcme } from './acme.ts';

/** Sends headers that `fetch` does not send. */
const rawly = (url: string, options: { method?: string; headers: Record<string, string> }) =>
  new Promise<{ status: number | undefined; body: unknown }>((resolve, reject) => {
    const sent = request(url, options, async (response) => {
      const chunks = await response.toArray();
      resolve({ status: response.statusCode, body: JSON.parse(Buffer.concat(chunks).toString()) });
    });
    sent.on('error', reject).end();
  });

t.test('errors of the routes of /pushy', async (t) => {
  const { a } = await startAcme(t, 1);
  const states = '/organizations/acme/pushy/node_states';

  await t.test('a bad parameter is 400, also where other routes answer 409', async (t) => {
    const rows: [name: string, target: string, error: RegExp][] = [
      ['a NUL character', `${JOBS}/a%00b`, /^id /],
      ['a NUL character in a name', `${states}/%00`, /^node /],
      ['a repeated parameter', `${JOBS}?limit=1&limit=2`, /^limit is given more than once$/],
      ['a wrong parameter', `${JOBS}?limit=0`, /^Request parameters failed validation: limit /],
    ];
    for (const [name, target, error] of rows)
      t.match(await asked(a, 'GET', target), { status: 400, body: { error: { 0: error, length: 1 } } }, name);
  });

  await t.test('the audit records the status that was answered', async (t) => {
    t.equal((await asked(a, 'DELETE', `${JOBS}/a%00b`)).status, 400);
    const records = () => a.get<AuditRecord[]>('/audit?action=DeleteChefJob');
    const record = await until(async () => (await records()).body[0], 'the record');
    t.match(record, { status: 400, code: 'InvalidArgument' });
  });

  await t.test('a request that is refused before its route is asked has the form, too', async (t) => {
    const error = (text: RegExp) => ({ error: { 0: text, length: 1 } });
    const foreign = { Host: 'evil.example.com' };
    t.match(await rawly(a.url + JOBS, { headers: foreign }), { status: 403, body: error(/^Host evil/) });
    const page = { Origin: 'https://evil.example.com' };
    t.match(await rawly(`${a.url}${states}/x?y=z`, { headers: page }), { status: 403, body: error(/^Requests from/) });
    t.match(await rawly(`${a.url}${JOBS}?x=${'y'.repeat(9_000)}`, { headers: {} }), {
      status: 414,
      body: error(/^The URL is longer/),
    });
    t.match(await rawly(a.url + JOBS, { method: 'PUT', headers: {} }), { status: 405, body: error(/not allowed/) });
    const other = await rawly(`${a.url}/servers`, { headers: foreign });
    t.match(other, { status: 403, body: { code: 'Forbidden', message: /^Host evil/ } }, 'and other routes have theirs');
  });
});
