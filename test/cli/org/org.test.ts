/** `cnapi org`, run as people and scripts run it. */
import { createPrivateKey, createPublicKey, randomUUID } from 'node:crypto';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import type { Binding, Group, User } from '../../../lib/protocol/api/documents/organizations.ts';
import { freshZone } from '../../support/apps.ts';
import { Cli } from '../rig.ts';

t.test('organizations on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const cli = new Cli(t, [app.url]);
  const file = (name: string) => path.join(cli.home, name);
  for (const Hostname of ['web-1', 'web-2', 'db-1']) {
    const UUID = randomUUID();
    await app.post(`/servers/${UUID}/sysinfo`, { sysinfo: { UUID, Hostname } });
  }
  const org = async (...args: string[]) => {
    const { code, stdout, stderr } = await cli.run('org', ...args);
    if (code !== 0) throw new Error(`org ${args.join(' ')} ended with ${code}: ${stderr}`);
    return stdout.trim();
  };

  await t.test('an organization is created, listed and shown', async (t) => {
    const uuid = await org('create', 'acme', '--full-name', 'Acme Ltd', '--allow', 'chef-client', '--allow', 'sleep *');
    t.match(uuid, /^[0-9a-f-]{36}$/);
    await org('create', 'other');
    t.match(await org('list'), /ORGANIZATION +UUID +FULL NAME\n.*acme +[0-9a-f-]+ +Acme Ltd/s);
    t.match(await org('get', 'acme'), /name +acme/);
    t.match(await org('get', uuid), /Acme Ltd/);
    t.match(await cli.run('org', 'create', 'acme'), {
      code: 1,
      stderr: /There is already an organization with the name "acme" \(/,
    });
    t.match(await cli.run('org', 'create', 'Ac me'), { code: 2, stderr: /lower-case letters/ });
    t.match(await cli.run('org', 'get', 'nobody'), { code: 2, stderr: /There is no organization nobody/ });
    t.match(await cli.run('org', 'get', 'acm*'), { code: 2, stderr: /There is no organization/ });
  });

  await t.test('users come and go in organizations, clients are in one', async (t) => {
    await org('user', 'create', 'alice', '--org', 'acme');
    await org('user', 'create', 'bob');
    t.notMatch(await org('user', 'list', 'acme'), /bob/);
    await org('user', 'add', 'acme', 'bob', 'alice');
    t.match(await org('user', 'list', 'acme'), /alice[\s\S]*bob/);
    await org('user', 'remove', 'acme', 'bob');
    const users = await cli.json<User[]>('org', 'user', 'list');
    t.same(Object.fromEntries(users.map(({ name, organizations }) => [name, organizations.length])), {
      alice: 1,
      bob: 0,
    });
    await org('user', 'delete', 'bob');
    t.notMatch(await org('user', 'list'), /bob/);
    await org('client', 'create', 'acme', 'web-1');
    await org('client', 'create', 'other', 'web-1');
    await org('client', 'delete', 'other', 'web-1');
    t.match(await org('client', 'list', 'acme'), /web-1/);
    t.notMatch(await org('client', 'list', 'other'), /web-1/);
  });

  await t.test('a private key goes into a file that only its owner can read, or to stdout', async (t) => {
    t.equal(await org('key', 'create', 'alice', '--file', 'alice.pem'), 'alice.pem');
    t.equal(statSync(file('alice.pem')).mode & 0o777, 0o600);
    const key = createPrivateKey(readFileSync(file('alice.pem'), 'utf8'));
    t.match(await cli.run('org', 'key', 'create', 'alice', '--name', 'b', '--file', 'alice.pem'), {
      code: 2,
      stderr: /alice\.pem exists: it may hold another token or key/,
    });
    t.match(await cli.run('org', 'key', 'create', 'alice', '--name', 'b', '--file', 'alice.pem/b.pem'), {
      code: 2,
      stderr: /alice\.pem\/b\.pem cannot be created/,
    });
    const shown = await org('key', 'create', 'acme/web-1', '--expires', '90d');
    t.match(shown, /^-----BEGIN RSA PRIVATE KEY-----[\s\S]*-----END RSA PRIVATE KEY-----$/);
    const pem = createPublicKey(key.export({ type: 'pkcs8', format: 'pem' })).export({ type: 'spki', format: 'pem' });
    writeFileSync(file('pub.pem'), pem);
    t.equal(await org('key', 'create', 'acme/web-1', '--name', 'mine', '--public-key', 'pub.pem'), '');
    t.match(await org('key', 'list', 'acme/web-1'), /KEY +UUID +EXPIRES[\s\S]*mine/);
    t.match(await cli.run('org', 'key', 'create', 'alice', '--name', 'c', '--public-key', 'alice.pem'), {
      code: 2,
      stderr: /alice\.pem is a private key; keep that/,
    });
    await org('key', 'delete', 'acme/web-1', 'mine');
    t.notMatch(await org('key', 'list', 'acme/web-1'), /mine/);
    t.match(await cli.run('org', 'key', 'list', 'acme/none'), { code: 2, stderr: /There is no client none/ });
  });

  await t.test('groups have users, clients and groups, which are shown by name', async (t) => {
    await org('group', 'create', 'acme', 'admins', '--user', 'alice');
    await org('group', 'create', 'acme', 'pushy_job_writers', '--group', 'admins');
    await org('group', 'add', 'acme', 'pushy_job_writers', '--client', 'web-1');
    const shown = await org('group', 'get', 'acme', 'pushy_job_writers');
    t.match(shown, /clients +web-1/);
    t.match(shown, /groups +admins/);
    await org('group', 'remove', 'acme', 'pushy_job_writers', '--client', 'web-1');
    const { clients, groups } = await cli.json<Group>('org', 'group', 'get', 'acme', 'pushy_job_writers');
    t.same([clients.length, groups.length], [0, 1]);
    for (const change of ['add', 'remove'])
      t.match(await cli.run('org', 'group', change, 'acme', 'admins'), {
        code: 2,
        stderr: /Which members\? Give --user, --client, --group, or several of them/,
      });
    t.match(await cli.run('org', 'group', 'add', 'acme', 'admins', '--client', 'none'), {
      code: 2,
      stderr: /There is no client none/,
    });
    t.match(await org('group', 'list', 'acme'), /^admins .*\npushy_job_writers /m, 'in order of name');
  });

  await t.test('servers are bound under their hostnames, perhaps for some groups only', async (t) => {
    await org('server', 'add', 'acme', 'web-1', 'web-2');
    await org('server', 'add', 'acme', 'db-1', '--group', 'admins');
    t.match(await org('server', 'list', 'acme'), /^db-1 [^\n]*\nweb-1 [^\n]*\nweb-2 /m, 'in order of hostname');
    t.match(await org('server', 'list', 'acme'), /NODE +SERVER +GROUPS[\s\S]*db-1 +[0-9a-f-]+ +admins/);
    t.match(await cli.run('org', 'server', 'add', 'acme', 'web-1', 'web-2'), {
      code: 0,
      stderr: /web-1 belongs to acme already[\s\S]*web-2 belongs to acme already/,
    });
    t.match(await cli.run('org', 'server', 'add', 'acme', 'web-1', 'db-1'), {
      code: 2,
      stderr: /db-1 belongs to acme already, with other groups: remove it first/,
    });
    await org('server', 'remove', 'acme', 'web-2');
    const bound = await cli.json<Binding[]>('org', 'server', 'list', 'acme');
    t.same(bound.map(({ groups }) => groups?.length ?? null).toSorted(), [1, null]);
    t.match(await cli.run('org', 'server', 'remove', 'acme', 'web-2'), {
      code: 2,
      stderr: /web-2 does not belong to acme/,
    });
    const shown = await org('get', 'acme');
    t.match(shown, /users +alice\nclients +web-1\ngroups +admins, pushy_job_writers\nservers +2/);
    t.match(await cli.json('org', 'get', 'acme'), { users: { 0: 'alice' }, servers: 2 });
    t.match(await org('list'), /acme[\s\S]*other/);
    await org('delete', 'other');
    t.notMatch(await org('list'), /other/);
  });
});
