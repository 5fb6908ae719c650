import { generateKeyPairSync, randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { Organizations } from '../../../lib/control/organizations/organizations.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';

async function start(t: Test) {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const organizations = new Organizations({ database: zone.database, random: systemRandom });
  return { zone, app, organizations };
}

async function create(app: TestApp, path: string, body: object): Promise<string> {
  const made = await app.post<{ uuid: string }>(path, body);
  if (made.status !== 201) throw new Error(`${path}: ${JSON.stringify(made)}`);
  return made.body.uuid;
}

async function createServer(app: TestApp, hostname: string): Promise<string> {
  const uuid = randomUUID();
  const { status } = await app.post(`/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: hostname } });
  if (status !== 200) throw new Error(`sysinfo: ${status}`);
  return uuid;
}

t.test('two organizations may have clients and groups of one name, one organization may not', async (t) => {
  const { app } = await start(t);
  const acme = await create(app, '/organizations', { name: 'acme' });
  const other = await create(app, '/organizations', { name: 'other' });
  t.match(await app.post('/organizations', { name: 'acme' }), { status: 409, body: { code: 'UniqueAttribute' } });
  t.match(await app.post('/organizations', { name: 'Not a name' }), {
    status: 400,
    body: { errors: { 0: { field: 'name' } } },
  });
  for (const kind of ['clients', 'groups']) {
    for (const organization of [acme, other]) await create(app, `/${kind}`, { organization, name: 'web' });
    t.match(await app.post(`/${kind}`, { organization: acme, name: 'web' }), {
      status: 409,
      body: {
        code: 'UniqueAttribute',
        message: `There is already a ${kind.slice(0, -1)} with the name "web" and the same organization`,
      },
    });
    t.match(await app.post(`/${kind}`, { organization: randomUUID(), name: 'web' }), {
      status: 409,
      body: { message: /There is no organization/ },
    });
    const { body } = await app.get<Record<string, unknown[]>>(`/${kind}?organization=${acme}&name=web`);
    t.equal(body[kind]?.length, 1);
  }
});

t.test('a client cannot move to another organization, nor a key to another owner', async (t) => {
  const { app } = await start(t);
  const acme = await create(app, '/organizations', { name: 'acme' });
  const other = await create(app, '/organizations', { name: 'other' });
  const client = await create(app, '/clients', { organization: acme, name: 'web' });
  t.match(await app.post(`/clients/${client}`, { organization: other }), { status: 409 });
  const key = await create(app, '/keys', { owner: client });
  t.match(await app.post(`/keys/${key}`, { owner: randomUUID() }), { status: 409 });
});

t.test('the instance makes a pair of keys and shows the private one once, or takes a public one', async (t) => {
  const { app } = await start(t);
  const owner = await create(app, '/users', { name: 'alice' });
  const made = await app.post<Record<string, string>>('/keys', { owner, name: 'laptop' });
  t.match(made, {
    status: 201,
    body: { name: 'laptop', public_key: /BEGIN PUBLIC KEY/, private_key: /BEGIN RSA PRIVATE KEY/ },
  });
  const read = await app.get<object>(`/keys/${made.body.uuid}`);
  t.notOk('private_key' in read.body);

  const pair = (bits: number) =>
    generateKeyPairSync('rsa', {
      modulusLength: bits,
      publicKeyEncoding: { type: 'spki', format: 'pem' },
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    });
  const { publicKey: public_key, privateKey } = pair(2048);
  t.match(await app.post('/keys', { owner, public_key }), { status: 201, body: { name: 'default', public_key } });
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'pem' });
  for (const [wrong, reason] of [
    ['nonsense', /not an RSA public key/],
    [privateKey, /is a private key/],
    [pair(1024).publicKey, /has 1024 bits/],
    [ec, /not an RSA public key/],
  ] as const)
    t.match(await app.post('/keys', { owner, name: 'x', public_key: wrong }), {
      status: 409,
      body: { message: reason, errors: { 0: { field: 'public_key' } } },
    });
  t.match(await app.post('/keys', { owner: randomUUID() }), {
    status: 409,
    body: { message: /There is no user or client/ },
  });
  for (let number = 3; number <= 10; number++) await create(app, '/keys', { owner, name: `k${number}`, public_key });
  t.match(await app.post('/keys', { owner, name: 'k11', public_key }), {
    status: 409,
    body: { code: 'TooManyDocuments', message: /There are 10 keys already; delete some/ },
  });
});

t.test('a node is a bound server under its hostname; several of one hostname are ambiguous', async (t) => {
  const { app, organizations } = await start(t);
  const acme = await create(app, '/organizations', { name: 'acme' });
  const other = await create(app, '/organizations', { name: 'other' });
  const admins = await create(app, '/groups', { organization: acme, name: 'admins' });
  const [web, db, db2, foreign] = await Promise.all(
    ['web', 'db', 'db', 'foreign'].map((one) => createServer(app, one)),
  );
  const bind = (organization: string, server_uuid: string | undefined, groups?: string[]) =>
    create(app, '/bindings', { organization, server_uuid, groups });
  await bind(acme, web);
  await bind(acme, db, [admins]);
  await bind(other, foreign);
  t.match(await app.post('/bindings', { organization: acme, server_uuid: web }), { status: 409 });
  const theirs = await create(app, '/groups', { organization: other, name: 'admins' });
  for (const group of [theirs, randomUUID()])
    t.match(await app.post('/bindings', { organization: acme, server_uuid: foreign, groups: [group] }), {
      status: 409,
      body: { message: `There is no group ${group}` },
    });
  t.match(await app.post('/bindings', { organization: acme, server_uuid: randomUUID() }), {
    status: 409,
    body: { message: /There is no server/ },
  });

  const organization = await organizations.organization('acme');
  t.equal(organization.uuid, acme);
  const found = await organizations.nodesOf(organization, ['web', 'db', 'foreign', 'nobody']);
  t.same(
    [...found],
    [
      ['web', { name: 'web', serverUuid: web, executors: undefined }],
      ['db', { name: 'db', serverUuid: db, executors: new Set(['admins']) }],
      ['foreign', 'unknown'],
      ['nobody', 'unknown'],
    ],
  );
  await bind(acme, db2);
  t.equal((await organizations.nodesOf(organization, ['db'])).get('db'), 'ambiguous');
  t.same(
    (await organizations.allNodes(organization)).map(({ name }) => name),
    ['db', 'db', 'web'],
  );
  t.equal(await app.delete(`/servers/${db}`), 200);
  t.same(
    (await organizations.nodesOf(organization, ['db'])).get('db'),
    { name: 'db', serverUuid: db2, executors: undefined },
    'the right to execute is that of the server that has the name now',
  );
  for (const name of ['acm*', 'none'])
    await t.rejects(organizations.organization(name), { message: `organization '${name}' does not exist.` });
});

t.test('what belonged to a deleted organization, owner or server is deleted by housekeeping', async (t) => {
  const { app, organizations } = await start(t);
  const acme = await create(app, '/organizations', { name: 'acme' });
  const kept = await create(app, '/organizations', { name: 'kept' });
  const server_uuid = await createServer(app, 'web');
  const gone = await createServer(app, 'gone');
  for (const organization of [acme, kept]) {
    await create(app, '/groups', { organization, name: 'admins' });
    await create(app, '/bindings', { organization, server_uuid });
    await create(app, '/bindings', { organization, server_uuid: gone });
    const client = await create(app, '/clients', { organization, name: 'web' });
    await create(app, '/keys', { owner: client });
  }
  t.equal(await organizations.deleteOrphans(), 0);
  t.equal(await app.delete(`/organizations/${acme}`), 204);
  t.equal(await app.delete(`/servers/${gone}`), 200);
  while ((await organizations.deleteOrphans()) > 0);
  for (const kind of ['clients', 'groups', 'bindings', 'keys']) {
    const { body } = await app.get<Record<string, unknown[]>>(`/${kind}`);
    t.equal(body[kind]?.length, 1, kind);
  }
});

t.test('changes of members at the same time do not undo each other, and name what exists', async (t) => {
  const { app } = await start(t);
  const acme = await create(app, '/organizations', { name: 'acme' });
  const other = await create(app, '/organizations', { name: 'other' });
  const clients = await Promise.all(
    ['a', 'b', 'c', 'd'].map((name) => create(app, '/clients', { organization: acme, name })),
  );
  const group = await create(app, '/groups', { organization: acme, name: 'admins', clients: clients.slice(0, 1) });
  const change = (way: string, fields: object) => app.post(`/groups/${group}/members`, { change: way, ...fields });
  const answers = await Promise.all(clients.map((client) => change('add', { clients: [client] })));
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  const read = async () => (await app.get<{ clients: string[] }>(`/groups/${group}`)).body.clients.toSorted();
  t.same(await read(), clients.toSorted());
  await change('remove', { clients: clients.slice(1) });
  t.same(await read(), clients.slice(0, 1));

  const foreign = await create(app, '/clients', { organization: other, name: 'a' });
  for (const [field, uuid] of [
    ['clients', foreign],
    ['clients', randomUUID()],
    ['users', randomUUID()],
    ['groups', randomUUID()],
  ] as const)
    t.match(await change('add', { [field]: [uuid] }), {
      status: 409,
      body: { message: new RegExp(`There is no ${field.slice(0, -1)} ${uuid}`) },
    });
  const user = await create(app, '/users', { name: 'alice' });
  t.match(await app.post(`/users/${user}/organizations`, { change: 'add', organizations: [randomUUID()] }), {
    status: 409,
    body: { message: /There is no organization/ },
  });
});
