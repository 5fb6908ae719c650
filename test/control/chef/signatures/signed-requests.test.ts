import { createPublicKey, randomUUID } from 'node:crypto';
import { request } from 'node:http';
import t, { type Test } from 'tap';
import { UNUSED_KEY } from '../../../../lib/control/organizations/key-material.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { signed } from './sign.ts';
import { bearer, keyPair, type SignedZone, signedZone } from './signed-api.ts';

const VERSIONS = ['1.0', '1.1', '1.2', '1.3'] as const;
const pairs = { first: keyPair(), second: keyPair(), unknown: keyPair() };
/** Time does not pass, so what was charged stays charged. */
const frozen = { ...systemClock, now: () => 0 };
const alice = { userId: 'alice', key: pairs.first.privateKey };

/** The organization acme with the user alice, who may do everything, and the client web. */
async function acme(zone: SignedZone) {
  const organization = await zone.create('organizations', { name: 'acme' });
  const user = await zone.create('users', { name: 'alice', organizations: [organization] });
  const client = await zone.create('clients', { organization, name: 'web' });
  const key = await zone.create('keys', { owner: user, public_key: pairs.first.publicKey });
  await zone.create('keys', { owner: client, public_key: pairs.second.publicKey });
  const admins = await zone.create('groups', { organization, name: 'admins', users: [user] });
  return { organization, user, client, key, admins };
}

async function start(t: Test) {
  const zone = await signedZone(t);
  return { zone, ...(await acme(zone)), api: await zone.startApi() };
}

t.test('a signed request is accepted in each version of the protocol', async (t) => {
  const { api } = await start(t);
  for (const version of VERSIONS) {
    const read = await api.call('GET', { ...alice, version });
    t.equal(read.status, 200, version);
    t.same(read.body, {
      name: 'alice',
      kind: 'user',
      groups: ['admins'],
      actor: "user 'alice' of 'acme'",
      received: '',
    });
    const changed = await api.call('POST', { ...alice, version }, { body: `{"of": "${version}"}` });
    t.match(changed, { status: 200, body: { received: `{"of": "${version}"}` } }, version);
  }
  const client = await api.call('GET', { userId: 'web', key: pairs.second.privateKey });
  t.match(client, { status: 200, body: { kind: 'client', actor: "client 'web' of 'acme'" } });
});

t.test('each refusal has the status and text of Chef', async (t) => {
  const { zone, api } = await start(t);
  const other = await zone.create('organizations', { name: 'other' });
  await zone.create('clients', { organization: other, name: 'theirs' });
  const minutes = (count: number) => ({ now: Date.now() + count * 60_000 });
  const failed = "Failed to authenticate as 'alice'";
  const rows = {
    'no headers at all': [
      await api.send('GET', {}),
      400,
      /^missing required authentication header\(s\) 'X-Ops-UserId'/,
    ],
    'some headers are missing': [
      await api.call('GET', alice, {}, { 'X-Ops-Timestamp': undefined }),
      400,
      "missing required authentication header(s) 'X-Ops-Timestamp'",
    ],
    'an unknown version': [
      await api.call('GET', alice, {}, { 'X-Ops-Sign': 'version=2.0' }),
      400,
      'Unsupported authentication protocol version',
    ],
    'an unreadable time': [await api.call('GET', alice, {}, { 'X-Ops-Timestamp': 'now' }), 401, /^bad header/],
    'signed too long ago': [
      await api.call('GET', { ...alice, ...minutes(-16) }),
      401,
      `${failed}. Synchronize the clock on your host.`,
    ],
    'signed in the future': [await api.call('GET', { ...alice, ...minutes(16) }), 401, /Synchronize the clock/],
    'an unknown user': [
      await api.call('GET', { ...alice, userId: 'bob' }),
      401,
      "Failed to authenticate as 'bob'. Ensure that your node_name and client key are correct.",
    ],
    'a client of another organization': [await api.call('GET', { ...alice, userId: 'theirs' }), 401, /as 'theirs'/],
    "somebody else's key": [
      await api.call('GET', { ...alice, key: pairs.unknown.privateKey }),
      401,
      `${failed}. Ensure that your node_name and client key are correct.`,
    ],
    'another body than was signed': [
      await api.send('POST', signed({ method: 'POST', target: '/organizations/acme/pushy/place', body: 'a' }, alice), {
        body: 'b',
      }),
      401,
      /^Invalid signature for user or client 'alice': the body/,
    ],
    'another path than was signed': [
      await api.send('GET', signed({ method: 'GET', target: '/organizations/acme/pushy', body: '' }, alice)),
      401,
      /Ensure that your node_name and client key are correct/,
    ],
    'a user of other organizations': [
      await api.call('GET', alice, { organization: 'other' }),
      403,
      "'alice' is not associated with organization 'other'",
    ],
    'no such organization': [
      await api.call('GET', alice, { organization: 'none' }),
      404,
      "organization 'none' does not exist.",
    ],
    'no such name of an organization': [await api.call('GET', alice, { organization: 'a%00' }), 404, /does not exist/],
    'a large body': [
      await api.call('POST', alice, { body: 'x'.repeat(1_000_001) }),
      413,
      'The body is larger than 1000000 bytes',
    ],
  } as const;
  for (const [name, [{ status, body, headers }, wanted, message]] of Object.entries(rows)) {
    t.equal(status, wanted, name);
    t.match(body.message, message, name);
    const challenge = status === 401 ? 'X-Ops-Sign version="1.0" version="1.1"' : null;
    t.equal(headers.get('www-authenticate'), challenge, name);
  }
  t.equal((await api.call('GET', { ...alice, ...minutes(-14) })).status, 200, '14 minutes ago is accepted');
});

t.test('the answer does not tell anybody without a key which names exist', async (t) => {
  const { zone } = await start(t);
  const other = await zone.create('organizations', { name: 'other' });
  await zone.create('users', { name: 'theirs', organizations: [other] });
  await zone.create('users', { name: 'keyless', organizations: [] });
  const api = await zone.startApi();
  const key = pairs.unknown.privateKey;
  const answers = [];
  for (const userId of ['alice', 'web', 'theirs', 'keyless', 'nobody']) {
    const { status, headers, body } = await api.call('GET', { userId, key });
    answers.push({ status, body: JSON.stringify(body).replace(userId, 'NAME'), form: [...headers.keys()] });
  }
  for (const answer of answers) t.same(answer, answers[0]);
});

t.test('the key that stands for those of an unknown name is like the keys of others', (t) => {
  const { asymmetricKeyType, asymmetricKeyDetails } = createPublicKey(UNUSED_KEY);
  t.match(
    { asymmetricKeyType, asymmetricKeyDetails },
    { asymmetricKeyType: 'rsa', asymmetricKeyDetails: { modulusLength: 2048 } },
  );
  t.end();
});

t.test('nobody is asked for a body whose signature fits no key', async (t) => {
  const { api } = await start(t);
  const target = '/organizations/acme/pushy/place';
  const body = 'x'.repeat(100_000);
  /** Sends the body when it is asked for. */
  const send = (signer: Parameters<typeof signed>[1]) =>
    new Promise<{ status: number | undefined; isAsked: boolean }>((resolve, reject) => {
      let isAsked = false;
      const head = { ...signed({ method: 'POST', target, body }, signer), 'Content-Length': body.length };
      const post = request(`${api.url}${target}`, { method: 'POST', headers: { ...head, Expect: '100-continue' } });
      post.on('continue', () => {
        isAsked = true;
        post.end(body);
      });
      post.on('response', (response) => {
        response.resume();
        resolve({ status: response.statusCode, isAsked });
        post.destroy();
      });
      post.on('error', reject).flushHeaders();
    });
  t.same(await send(alice), { status: 200, isAsked: true });
  const others = {
    "somebody else's key": { ...alice, key: pairs.unknown.privateKey },
    'an unknown name': { ...alice, userId: 'bob' },
    'signed too long ago': { ...alice, now: Date.now() - 16 * 60_000 },
  };
  for (const [name, signer] of Object.entries(others))
    t.same(await send(signer), { status: 401, isAsked: false }, name);
});

t.test('any key of the user that has not expired fits, and a deleted one does not', async (t) => {
  const { zone, api, user, key } = await start(t);
  const second = { ...alice, key: pairs.second.privateKey };
  t.equal((await api.call('GET', second)).status, 401);
  const expires_at = new Date(Date.now() - 1000).toISOString();
  const late = await zone.create('keys', { owner: user, name: 'b', public_key: pairs.second.publicKey, expires_at });
  t.equal((await api.call('GET', second)).status, 401, 'expired');
  const { keys } = zone.organizations.documents;
  await keys.update(late, { expires_at: new Date(Date.now() + 60_000).toISOString() }, undefined, (work) =>
    work(undefined),
  );
  for (const signer of [alice, second]) t.equal((await api.call('GET', signer)).status, 200, 'both keys fit');
  await keys.delete(key, undefined, (work) => work(undefined));
  t.same([(await api.call('GET', alice)).status, (await api.call('GET', second)).status], [401, 200]);
});

t.test('a user and a client of one name are told apart by their keys', async (t) => {
  const { zone, api, organization } = await start(t);
  const owner = await zone.create('clients', { organization, name: 'alice' });
  await zone.create('keys', { owner, public_key: pairs.unknown.publicKey });
  t.equal((await api.call('GET', alice)).body.kind, 'user');
  t.equal((await api.call('GET', { ...alice, key: pairs.unknown.privateKey })).body.kind, 'client');
});

t.test('a change is accepted once, by whichever instance; reading may be repeated', async (t) => {
  const { zone, api } = await start(t);
  const second = await zone.startApi();
  const target = '/organizations/acme/pushy/place';
  for (const version of VERSIONS) {
    const post = signed({ method: 'POST', target, body: '{}' }, { ...alice, version });
    const answers = await Promise.all([api, second, api, second].map((one) => one.send('POST', post, { body: '{}' })));
    t.same(answers.map(({ status }) => status).toSorted(), [200, 401, 401, 401], version);
    const replayed = answers.find(({ status }) => status === 401);
    t.match(replayed?.body.message, /was received before; wait a second and sign it again/);
    const again = await second.send('POST', { ...post, 'X-Ops-Server-API-Version': '01' }, { body: '{}' });
    t.equal(again.status, 401, `${version}: in other words`);
    const get = signed({ method: 'GET', target, body: '' }, { ...alice, version });
    for (const one of [api, second, api]) t.equal((await one.send('GET', get)).status, 200, `${version}: GET`);
  }
  const { rows } = await zone.database.query<{ count: number }>(
    'select count(*)::int as count from cnapi_request_signatures',
  );
  t.same(rows, [{ count: VERSIONS.length }], 'a row for each change, none for reading');
});

t.test(
  'the changes of one user are limited, whether they are permitted or not, and those of others are not',
  async (t) => {
    const { zone, user } = await start(t);
    const limited = { maxChanges: 3, failedAuthenticationsPerMinute: 1 };
    const [api, second] = [await zone.startApi(limited), await zone.startApi(limited)];
    const web = { userId: 'web', key: pairs.second.privateKey };
    const statuses = [];
    for (const one of [api, second, api, second, api])
      statuses.push((await one.call('POST', web, { body: randomUUID() })).status);
    t.same(statuses, [403, 403, 403, 429, 429]);
    t.equal((await api.call('GET', web)).status, 200, 'it may read, and has no failed authentication');
    t.equal((await api.call('POST', alice, { body: 'x' })).status, 200);
    const count = async () => {
      const { rows } = await zone.database.query<{ principal: string; count: number }>(
        'select principal, count(*)::int as count from cnapi_request_signatures group by principal order by count',
      );
      return rows.map((row) => (row.principal === user ? ['alice', row.count] : ['web', row.count]));
    };
    t.same(await count(), [
      ['alice', 1],
      ['web', 3],
    ]);
    await zone.database.query("update cnapi_request_signatures set received_at = received_at - interval '2 hours'");
    t.equal((await api.call('POST', web, { body: randomUUID() })).status, 403, 'an hour later');
  },
);

t.test('a change that was refused cannot be sent again once its sender may make it', async (t) => {
  const { zone, api, client, admins } = await start(t);
  const target = '/organizations/acme/pushy/place';
  const post = signed({ method: 'POST', target, body: '{}' }, { userId: 'web', key: pairs.second.privateKey });
  t.equal((await api.send('POST', post, { body: '{}' })).status, 403);
  await zone.organizations.documents.groups.update(admins, { clients: [client] }, undefined, (work) => work(undefined));
  t.equal((await api.send('POST', post, { body: '{}' })).status, 401);
});

t.test('who reads and who changes is decided by groups, also nested and in a circle', async (t) => {
  const { zone, api, organization, user, client, admins } = await start(t);
  const web = { userId: 'web', key: pairs.second.privateKey };
  const statuses = async () => {
    const calls = [alice, web].flatMap((one) => ['GET', 'POST'].map((method) => [method, one] as const));
    const results = [];
    for (const [method, one] of calls)
      results.push((await api.call(method, one, { body: method === 'GET' ? '' : randomUUID() })).status);
    return results;
  };
  t.same(await statuses(), [200, 200, 200, 403], 'without groups: all read, admins change');
  const group = (name: string, members: object) => zone.create('groups', { organization, name, ...members });
  const writers = await group('pushy_job_writers', { clients: [client] });
  t.same(await statuses(), [200, 403, 200, 200], 'with writers: only they change');
  await group('pushy_job_readers', { users: [user] });
  t.same(await statuses(), [200, 403, 403, 200], 'with readers: only they read');
  const refused = await api.call('POST', alice);
  t.equal(
    refused.body.message,
    "User or client 'alice' does not have access to that action on this server. Rule: it is not in the group pushy_job_writers",
  );

  const inner = await group('inner', { groups: [admins] });
  const outer = await group('outer', { groups: [inner] });
  const { groups } = zone.organizations.documents;
  await groups.update(writers, { groups: [outer] }, undefined, (work) => work(undefined));
  await groups.update(inner, { groups: [admins, writers] }, undefined, (work) => work(undefined));
  t.same(await statuses(), [200, 200, 403, 200], 'a member of a member is a member');
  t.same((await api.call('GET', alice)).body.groups, [
    'admins',
    'inner',
    'outer',
    'pushy_job_readers',
    'pushy_job_writers',
  ]);
});

t.test('where there is not even a group admins, nobody changes anything', async (t) => {
  const { zone, api, admins } = await start(t);
  await zone.organizations.documents.groups.delete(admins, undefined, (work) => work(undefined));
  t.equal((await api.call('POST', alice)).status, 403);
  t.equal((await api.call('GET', alice)).status, 200);
});

t.test('a token of this API acts with its own rights', async (t) => {
  const { zone, api } = await start(t);
  const reader = await bearer(zone.database, 'reader');
  const operator = await bearer(zone.database, 'operator');
  t.match(await api.send('GET', reader), { status: 200, body: { kind: 'token', name: 'the reader' } });
  t.equal((await api.send('POST', reader)).status, 403);
  t.match(await api.send('POST', operator, { body: 'x' }), { status: 200, body: { received: 'x' } });
  t.equal((await api.send('GET', operator, { organization: 'none' })).status, 404);
  t.equal((await api.send('GET', { Authorization: 'Bearer wrong' })).status, 401);
  t.equal((await api.send('GET', await bearer(zone.database, 'agent'))).status, 403);
});

t.test('the audit names who signed a change', async (t) => {
  const { zone, api } = await start(t);
  await api.call('POST', alice);
  await api.call('POST', { ...alice, key: pairs.unknown.privateKey });
  await api.audit.stop();
  const { rows } = await zone.database.query('select actor, roles, status from cnapi_audit order by status');
  t.same(rows, [
    { actor: "user 'alice' of 'acme'", roles: [], status: 200 },
    { actor: 'nobody', roles: [], status: 401 },
  ]);
});

t.test('failures are limited by address, also under a name that is known, but not with a known key', async (t) => {
  const { zone, key } = await start(t);
  const api = await zone.startApi({ failedAuthenticationsPerMinute: 3 });
  t.equal((await api.call('GET', alice)).status, 200);
  const guesses = [
    { ...alice, userId: 'bob' },
    { ...alice, key: pairs.unknown.privateKey },
  ];
  const statuses = [];
  for (let count = 0; count < 6; count++) statuses.push((await api.call('GET', guesses[count % 2] ?? alice)).status);
  t.same(statuses, [401, 401, 401, 429, 429, 429]);
  for (let count = 0; count < 3; count++) t.equal((await api.call('GET', alice)).status, 200, 'a known key');
  t.equal((await api.call('GET', { userId: 'web', key: pairs.second.privateKey })).status, 429, 'not known yet');
  await zone.organizations.documents.keys.delete(key, undefined, (work) => work(undefined));
  t.equal((await api.call('GET', alice)).status, 401, 'a known key that was deleted');
  t.equal((await api.call('GET', alice)).status, 429, 'is limited from then on');
});

t.test('another body than the signed one counts as a failed authentication of its address', async (t) => {
  const { zone } = await start(t);
  const api = await zone.startApi({ failedAuthenticationsPerMinute: 3, clock: frozen });
  const post = signed({ method: 'POST', target: '/organizations/acme/pushy/place', body: 'a' }, alice);
  for (let count = 0; count < 5; count++) t.equal((await api.send('POST', post, { body: 'b' })).status, 401);
  t.equal(api.authenticator.stats.authenticationsFailed, 5);
  t.equal((await api.call('GET', { ...alice, userId: 'bob' })).status, 429);
  t.equal((await api.send('POST', post, { body: 'a' })).status, 200, 'its key is known');
});

t.test('a signer is charged for its bodies, and not for others that are sent with its headers', async (t) => {
  const { zone, admins, client } = await start(t);
  await zone.organizations.documents.groups.update(admins, { clients: [client] }, undefined, (work) => work(undefined));
  const web = { userId: 'web', key: pairs.second.privateKey };
  const large = () => randomUUID().repeat(25_000);
  const post = signed({ method: 'POST', target: '/organizations/acme/pushy/place', body: 'a' }, alice);
  /** Sends bodies until one is refused because of those before, and returns the other statuses. */
  const statusesOf = async (send: () => Promise<{ status: number }>) => {
    const statuses = new Set<number>();
    for (let count = 0; count < 50; count++) {
      const { status } = await send();
      if (status === 429) return [...statuses];
      statuses.add(status);
    }
    return 'no end';
  };
  const limited = { requestsPerSecond: 100, clock: frozen };
  const own = await zone.startApi(limited);
  t.same(await statusesOf(() => own.call('POST', alice, { body: large() })), [200]);
  t.equal((await own.call('POST', web, { body: large() })).status, 200, 'another client at the same address');
  const captured = await zone.startApi(limited);
  t.same(await statusesOf(() => captured.send('POST', post, { body: large() })), [401]);
  t.equal((await captured.call('POST', web, { body: large() })).status, 429, 'the address is charged');
  t.equal((await captured.call('POST', alice)).status, 200, 'a small body is free');
});
