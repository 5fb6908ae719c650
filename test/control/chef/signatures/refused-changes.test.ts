/** Signed changes that were refused for now, and are sent again with the same signature. */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import t, { type Test } from 'tap';
import type { Teardown } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';
import { asked, created, JOBS, startAcme } from '../acme.ts';
import { signed } from './sign.ts';
import { keyPair, type SignedApi, type SignedZone, signedZone } from './signed-api.ts';

const pair = keyPair();
const alice = { userId: 'alice', key: pair.privateKey };
const MAX_UNFINISHED = 500;

t.test('an instance that finds its database unhealthy remembers no change, and another carries it out', async (t) => {
  const zone = await zoneOfAlice(t);
  const healthy = await zone.startApi();
  let isHealthy = false;
  const unhealthy = await zone.startApi({ isHealthy: () => isHealthy });
  const first = changeOf('POST', 'first');
  for (const api of [unhealthy, unhealthy]) t.equal((await api.send('POST', first, { body: 'first' })).status, 503);
  t.equal(await countSignatures(zone), 0);
  const answers = await Promise.all([healthy, healthy].map((api) => api.send('POST', first, { body: 'first' })));
  t.same(answers.map(({ status }) => status).toSorted(), [200, 401]);
  isHealthy = true;
  for (const api of [healthy, unhealthy]) t.equal((await api.send('POST', first, { body: 'first' })).status, 401);
});

t.test('a signed change that is refused for now is recorded with who signed it', async (t) => {
  const zone = await zoneOfAlice(t);
  const actors = async (api: SignedApi) => {
    const found = await until(async () => {
      const records = await api.audit.list({ limit: 10 });
      return records.length > 0 && records.every(({ status }) => status !== null) ? records : undefined;
    }, 'the records');
    return found.map(({ actor, status }) => [actor, status]);
  };
  const unhealthy = await zone.startApi({ isHealthy: () => false });
  const change = changeOf('POST', 'change');
  t.equal((await unhealthy.send('POST', change, { body: 'other' })).status, 401);
  t.same(await actors(unhealthy), [['nobody', 401]], 'whose body is another one');
  await zone.database.query('delete from cnapi_audit');
  t.equal((await unhealthy.send('POST', change, { body: 'change' })).status, 503);
  t.same(await actors(unhealthy), [["user 'alice' of 'acme'", 503]]);
});

t.test('a change that its statement refused for now may be repeated, while the database is healthy', async (t) => {
  const zone = await zoneOfAlice(t);
  let checks = 0;
  const apis = [await zone.startApi(), await zone.startApi({ isHealthy: () => ++checks < 2 })];
  const change = changeOf('PUT', 'change');
  const statuses = [];
  for (const api of [apis[0], apis[0], apis[1], apis[0]])
    statuses.push((await api?.send('PUT', change, { body: 'change' }))?.status);
  t.same(statuses, [503, 503, 503, 401]);
});

t.test('a change that was refused before the rights of its sender were known may not be repeated', async (t) => {
  const zone = await zoneOfAlice(t);
  const api = await zone.startApi();
  const change = changeOf('PUT', 'rights');
  t.equal((await api.send('PUT', change, { body: 'rights' })).status, 503);
  t.equal((await api.send('PUT', change, { body: 'rights' })).status, 401);
});

t.test('a change beyond the limit of its sender is carried out once when it is sent again later', async (t) => {
  const zone = await zoneOfAlice(t);
  const apis = [await zone.startApi({ maxChanges: 1 }), await zone.startApi({ maxChanges: 1 })];
  const [first, second] = [changeOf('POST', 'first'), changeOf('POST', 'second')];
  const statuses = async (headers: object, body: string) => {
    const answers = await Promise.all(apis.map((api) => api.send('POST', headers, { body })));
    return answers.map(({ status }) => status).toSorted();
  };
  t.equal((await apis[0]?.send('POST', first, { body: 'first' }))?.status, 200);
  t.same(await statuses(second, 'second'), [429, 429]);
  t.same(await statuses(first, 'first'), [429, 429], 'what was carried out is refused as well');
  await zone.database.query("update cnapi_request_signatures set received_at = received_at - interval '2 hours'");
  t.equal((await apis[1]?.send('POST', second, { body: 'second' }))?.status, 200);
  await zone.database.query("update cnapi_request_signatures set received_at = received_at - interval '2 hours'");
  t.same(await statuses(second, 'second'), [401, 401]);
});

t.test('a job that found no room is created once when its request is repeated', async (t) => {
  const { a, b, makeRoom, headers, body } = await fullAcme(t);
  for (const app of [a, b, a]) t.equal((await asked(app, 'POST', JOBS, { body, headers })).status, 503);
  await makeRoom();
  const answers = await Promise.all([a, b].map((app) => asked(app, 'POST', JOBS, { body, headers })));
  t.same(answers.map(({ status }) => status).toSorted(), [201, 401]);
  t.equal((await asked(b, 'POST', JOBS, { body, headers })).status, 401);
  t.equal((await asked(b, 'GET', JOBS, { signer: alice })).body.length, 1);
});

t.test('who saw a refused request at another address can neither carry it out nor prevent it', async (t) => {
  const { a, makeRoom, headers, body } = await fullAcme(t);
  const fromElsewhere = () => statusFrom('127.0.0.2', a.url, { headers, content: JSON.stringify(body) });
  t.equal((await asked(a, 'POST', JOBS, { body, headers })).status, 503);
  for (let count = 0; count < 7; count += 1) t.equal(await fromElsewhere(), 401);
  await makeRoom();
  t.equal(await fromElsewhere(), 401);
  t.equal((await asked(a, 'POST', JOBS, { body, headers })).status, 201);
});

t.test('a refused request is repeated at most five times', async (t) => {
  const { a, b, makeRoom, headers, body } = await fullAcme(t);
  for (const app of [a, b, a, b, a, b]) t.equal((await asked(app, 'POST', JOBS, { body, headers })).status, 503);
  t.equal((await asked(a, 'POST', JOBS, { body, headers })).status, 401);
  await makeRoom();
  t.equal((await asked(a, 'POST', JOBS, { body, headers })).status, 401);
});

async function zoneOfAlice(t: Teardown): Promise<SignedZone> {
  const zone = await signedZone(t);
  const organization = await zone.create('organizations', { name: 'acme' });
  const owner = await zone.create('users', { name: 'alice', organizations: [organization] });
  await zone.create('keys', { owner, public_key: pair.publicKey });
  await zone.create('groups', { organization, name: 'admins', users: [owner] });
  return zone;
}

function changeOf(method: string, body: string): object {
  return signed({ method, target: '/organizations/acme/pushy/place', body }, alice) as object;
}

async function countSignatures({ database }: SignedZone): Promise<number> {
  const { rows } = await database.query<{ count: number }>('select count(*)::int from cnapi_request_signatures');
  return rows[0]?.count ?? 0;
}

/** An organization without room for a job, and a signed request for one. */
async function fullAcme(t: Test) {
  const { a, b, acme, names, zone } = await startAcme(t, 1);
  const owner = await created(a, '/users', { name: 'alice', organizations: [acme] });
  await created(a, '/keys', { owner, public_key: pair.publicKey });
  await created(a, '/groups', { organization: acme, name: 'pushy_job_writers', users: [owner] });
  const { database } = zone;
  await database.query(
    `insert into cnapi_push_jobs (id, organization, command, options, node_count, quorum, voting_timeout_ms,
         run_timeout_ms, abort_timeout_ms)
       select gen_random_uuid(), $1::text, 'full', '{}', 0, 1, 60000, 60000, 60000 from generate_series(1, $2::int)`,
    [acme, MAX_UNFINISHED],
  );
  const makeRoom = () => database.query("delete from cnapi_push_jobs where command = 'full'");
  const body = { command: 'true', nodes: names.slice(0, 1) };
  const headers = signed({ method: 'POST', target: JOBS, body: JSON.stringify(body) }, alice) as Record<string, string>;
  return { a, b, makeRoom, headers, body };
}

/** The status of the answer to a POST from a local address. */
async function statusFrom(
  localAddress: string,
  url: string,
  { headers, content }: { headers: Record<string, string>; content: string },
): Promise<number | undefined> {
  const options = { method: 'POST', localAddress, headers: { 'content-type': 'application/json', ...headers } };
  const sent = request(`${url}${JOBS}`, options).end(content);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  response.resume();
  return response.statusCode;
}
