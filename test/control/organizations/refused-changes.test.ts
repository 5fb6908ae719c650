/** Signed changes that were refused before anything was done, and are sent again with the same signature. */
import t from 'tap';
import { asked, created, JOBS, startAcme } from '../pushy/acme.ts';
import { signed } from './sign.ts';
import { keyPair, signedZone } from './signed-api.ts';

const pair = keyPair();
const alice = { userId: 'alice', key: pair.privateKey };
const MAX_UNFINISHED = 500;

t.test('a change that an instance refused for now is carried out once when it is sent again, by any', async (t) => {
  const zone = await signedZone(t);
  const organization = await zone.create('organizations', { name: 'acme' });
  const owner = await zone.create('users', { name: 'alice', organizations: [organization] });
  await zone.create('keys', { owner, public_key: pair.publicKey });
  await zone.create('groups', { organization, name: 'admins', users: [owner] });
  const healthy = await zone.startApi();
  let isHealthy = false;
  const unhealthy = await zone.startApi({ isHealthy: () => isHealthy });
  const post = (body: string) =>
    signed({ method: 'POST', target: '/organizations/acme/pushy/place', body }, alice) as object;
  const first = post('first');
  for (const api of [unhealthy, unhealthy]) t.equal((await api.send('POST', first, { body: 'first' })).status, 503);
  const answers = await Promise.all([healthy, healthy].map((api) => api.send('POST', first, { body: 'first' })));
  t.same(answers.map(({ status }) => status).toSorted(), [200, 401]);
  t.equal((await unhealthy.send('POST', first, { body: 'first' })).status, 401, 'it was carried out by the other one');
  isHealthy = true;
  for (const api of [healthy, unhealthy]) t.equal((await api.send('POST', first, { body: 'first' })).status, 401);
});

t.test('a change beyond the limit of its sender is carried out once when it is sent again later', async (t) => {
  const zone = await signedZone(t);
  const organization = await zone.create('organizations', { name: 'acme' });
  const owner = await zone.create('users', { name: 'alice', organizations: [organization] });
  await zone.create('keys', { owner, public_key: pair.publicKey });
  await zone.create('groups', { organization, name: 'admins', users: [owner] });
  const apis = [await zone.startApi({ maxChanges: 1 }), await zone.startApi({ maxChanges: 1 })];
  const post = (body: string) =>
    signed({ method: 'POST', target: '/organizations/acme/pushy/place', body }, alice) as object;
  const [first, second] = [post('first'), post('second')];
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

t.test('a job that found no room is created once when its request is sent again', async (t) => {
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
  const body = { command: 'true', nodes: names.slice(0, 1) };
  const headers = signed({ method: 'POST', target: JOBS, body: JSON.stringify(body) }, alice) as Record<string, string>;
  for (const app of [a, b, a]) t.equal((await asked(app, 'POST', JOBS, { body, headers })).status, 503);
  await database.query("delete from cnapi_push_jobs where command = 'full'");
  const answers = await Promise.all([a, b].map((app) => asked(app, 'POST', JOBS, { body, headers })));
  t.same(answers.map(({ status }) => status).toSorted(), [201, 401]);
  t.equal((await asked(b, 'POST', JOBS, { body, headers })).status, 401);
  t.equal((await asked(b, 'GET', JOBS, { signer: alice })).body.length, 1);
});
