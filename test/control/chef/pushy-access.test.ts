/**
 * Who may do what with push jobs of an organization: requests that users and clients have signed.
 */
import t from 'tap';
import { asked, created, ended, JOBS, startAcme } from './acme.ts';
import type { Signer } from './signatures/sign.ts';
import { bearer, keyPair } from './signatures/signed-api.ts';

t.test('an organization with two nodes, a user and a client', async (t) => {
  const { a, b, agents, acme, other, names } = await startAcme(t, 2);
  const nodes = names.slice(0, 2);
  const signerOf = async (kind: 'users' | 'clients', fields: { name: string }): Promise<Signer & { uuid: string }> => {
    const { publicKey, privateKey } = keyPair();
    const uuid = await created(a, `/${kind}`, fields);
    await created(a, '/keys', { owner: uuid, public_key: publicKey });
    return { key: privateKey, userId: fields.name, uuid };
  };
  const alice = await signerOf('users', { name: 'alice', organizations: [acme] } as never);
  const bob = await signerOf('users', { name: 'bob', organizations: [other] } as never);
  const client = await signerOf('clients', { name: nodes[0], organization: acme } as never);
  const group = (name: string, members: object = {}) => created(a, '/groups', { organization: acme, name, ...members });
  const order = { command: 'echo hello', nodes };
  const post = (signer: Signer, app = a) => asked(app, 'POST', JOBS, { body: order, signer });
  const refused = (who: string) => `User or client '${who}' does not have access to that action on this server.`;

  await t.test('without groups all members read, and nobody writes', async (t) => {
    for (const signer of [alice, client]) t.equal((await asked(b, 'GET', JOBS, { signer })).status, 200);
    const { status, body } = await post(alice);
    t.equal(status, 403);
    t.match(body.error[0], refused('alice'));
  });

  await t.test('who is not a member is refused as in Chef', async (t) => {
    for (const [signer, path, status, error] of [
      [bob, JOBS, 403, "'bob' is not associated with organization 'acme'"],
      [alice, '/organizations/nowhere/pushy/jobs', 404, "organization 'nowhere' does not exist."],
      [{ ...alice, userId: 'nobody' }, JOBS, 401, "Failed to authenticate as 'nobody'"],
      [{ ...alice, key: bob.key }, JOBS, 401, "Failed to authenticate as 'alice'"],
      [{ ...alice, now: Date.now() - 1_000_000 }, JOBS, 401, 'Synchronize the clock on your host.'],
    ] as const) {
      const answer = await asked(a, 'GET', path, { signer });
      t.equal(answer.status, status, error);
      t.match(answer.body.error[0], error);
      if (status === 401) t.match(answer.headers.get('www-authenticate'), /X-Ops-Sign version="1\.0" version="1\.1"/);
    }
    const half = await asked(a, 'GET', JOBS, { headers: { 'X-Ops-UserId': 'alice' } });
    t.equal(half.status, 400);
    t.match(half.body.error[0], /missing required authentication header/);
  });

  await t.test('writers create jobs; a node without the right to execute fails from the start', async (t) => {
    await group('pushy_job_writers', { users: [alice.uuid] });
    const ops = await group('ops');
    const { body } = await a.get<{ bindings: { uuid: string }[] }>(`/bindings?server_uuid=${agents[1]?.serverUuid}`);
    await a.post(`/bindings/${body.bindings[0]?.uuid}`, { groups: [ops] });
    const { id } = (await asked(a, 'POST', JOBS, { body: { ...order, quorum: 1 }, signer: alice })).body;
    const job = await ended(b, id, { signer: alice });
    t.same(job.nodes, { failed: [nodes[1]], succeeded: [nodes[0]] });
    const feed = await asked(b, 'GET', `/organizations/acme/pushy/job_status_feed/${id}`, { signer: alice });
    t.match(feed.text, /"user":"alice"/);
    t.match(feed.text, new RegExp(`event: quorum_vote\ndata: [^\n]*"node":"${nodes[1]}","status":"failure"`));
    await a.post(`/groups/${ops}`, { users: [alice.uuid] });
    // The same request was refused above: in the same second it would have the same signature.
    const again = (await post({ ...alice, now: Date.now() + 2_000 })).body.id;
    t.same((await ended(b, again, { signer: alice })).nodes, { succeeded: nodes.toSorted() });
  });

  await t.test('a signed body counts, also that of an abort, and a signature counts once', async (t) => {
    const { id } = (await asked(a, 'GET', `${JOBS}?limit=1`, { signer: alice })).body[0];
    const abort = await asked(b, 'PUT', `${JOBS}/${id}/abort`, { body: {}, signer: alice });
    t.match(abort, { status: 200, body: { id } });
    const at = { ...alice, now: Date.now() + 5_000 };
    t.equal((await post(at)).status, 201);
    const replayed = await post(at, b);
    t.equal(replayed.status, 401);
    t.match(replayed.body.error[0], /received before/);
  });

  await t.test('where there is a group of readers, only they read', async (t) => {
    await group('pushy_job_readers', { users: [alice.uuid] });
    t.equal((await asked(b, 'GET', JOBS, { signer: alice })).status, 200);
    for (const path of [JOBS, '/organizations/acme/pushy/node_states', '/organizations/acme/pushy/job_status_feed'])
      t.equal((await asked(b, 'GET', path, { signer: client })).status, 403, path);
    t.equal(
      (await asked(b, 'GET', `${JOBS}/nothing`, { signer: client, headers: { Accept: 'text/html' } })).status,
      403,
      'the group comes before Accept, and before the job',
    );
  });

  await t.test('a client has its own configuration only', async (t) => {
    const config = (name = '') => `/organizations/acme/pushy/connect/${name}`;
    t.match(await asked(a, 'GET', config(nodes[0]), { signer: client }), { status: 200, body: { node: nodes[0] } });
    const { status, body } = await asked(a, 'GET', config(nodes[1]), { signer: client });
    t.equal(status, 403);
    t.equal(body.error[0], 'Client and node name must match');
    t.equal((await asked(a, 'GET', config(nodes[1]), { signer: alice })).status, 200);
  });
});

t.test('a token of the role reader sees jobs, but no commands and no output, and starts none', async (t) => {
  const { zone, a, names } = await startAcme(t, 1);
  const nodes = names.slice(0, 1);
  const body = { command: 'echo hello', nodes, env: { A: 'secret' }, file: 'raw:hidden', capture_output: true };
  const { id } = (await asked(a, 'POST', JOBS, { body })).body;
  await ended(a, id);
  const guarded = await zone.startApp({ access: 'tokens' });
  const reader = (await bearer(zone.database, 'reader')) as Record<string, string>;
  const operator = (await bearer(zone.database, 'operator')) as Record<string, string>;
  const feed = `/organizations/acme/pushy/job_status_feed/${id}`;
  for (const path of [JOBS, `${JOBS}/${id}?include_file=true`, feed]) {
    const seen = await asked(guarded, 'GET', path, { headers: reader });
    t.equal(seen.status, 200, path);
    t.notMatch(seen.text, /echo hello|secret|hidden/, path);
    t.match((await asked(guarded, 'GET', path, { headers: operator })).text, /echo hello/, path);
  }
  const output = `${JOBS}/${id}/output/${nodes[0]}/stdout`;
  t.equal((await asked(guarded, 'GET', output, { headers: reader })).status, 404);
  t.match(await asked(guarded, 'GET', output, { headers: operator }), { status: 200, text: 'hello\n' });
  t.equal((await asked(guarded, 'POST', JOBS, { body, headers: reader })).status, 403);
  t.equal((await asked(guarded, 'POST', JOBS, { body, headers: operator })).status, 201);
  t.equal((await asked(guarded, 'GET', JOBS)).status, 400, 'neither signed nor with a token');
  t.equal((await asked(guarded, 'GET', '/pushy/_status')).status, 200, 'everybody may see that it is alive');
});
