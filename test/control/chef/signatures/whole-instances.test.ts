/** Signed requests at two whole instances: the routes of push jobs in Chef's form. */
import t from 'tap';
import { asked, created, JOBS, startAcme } from '../acme.ts';
import { signed } from './sign.ts';
import { keyPair } from './signed-api.ts';

const alice = keyPair();
const unknown = keyPair();

t.test('a signed job is created once, whichever instance it is sent to', async (t) => {
  const { a, b, acme, names } = await startAcme(t, 1);
  const user = await created(a, '/users', { name: 'alice', organizations: [acme] });
  await created(a, '/keys', { owner: user, public_key: alice.publicKey });
  await created(a, '/groups', { organization: acme, name: 'pushy_job_writers', users: [user] });
  const body = { command: 'true', nodes: names.slice(0, 1) };
  const signer = { userId: 'alice', key: alice.privateKey };
  const headers = signed({ method: 'POST', target: JOBS, body: JSON.stringify(body) }, signer) as Record<
    string,
    string
  >;
  const answers = await Promise.all([a, b].map((app) => asked(app, 'POST', JOBS, { body, headers })));
  t.same(answers.map(({ status }) => status).toSorted(), [201, 401]);
  t.match(answers.find(({ status }) => status === 401)?.body, {
    error: { 0: /^Failed to authenticate as 'alice'. This signed request was received before/ },
  });
  t.equal((await asked(b, 'POST', JOBS, { body, headers })).status, 401, 'later, too');
  const { body: jobs } = await asked(b, 'GET', JOBS, { signer });
  t.equal(jobs.length, 1);
  const refused = await asked(b, 'POST', JOBS, { body, signer: { ...signer, key: unknown.privateKey } });
  t.match(refused, { status: 401, body: { error: { 0: /^Failed to authenticate as 'alice'/ } } });
  t.equal(refused.headers.get('www-authenticate'), 'X-Ops-Sign version="1.0" version="1.1"');
});
