/** The commands of a document noun, by the example of `cnapi group`. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { ServerGroup } from '../../../lib/protocol/api/documents/server-groups.ts';
import { freshZone } from '../../support/apps.ts';
import { Cli } from '../rig.ts';

t.test('server groups on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const cli = new Cli(t, [app.url]);
  const uuids = new Map<string, string>();
  for (const Hostname of ['web-1', 'web-2']) {
    const UUID = randomUUID();
    uuids.set(Hostname, UUID);
    await app.post(`/servers/${UUID}/sysinfo`, { sysinfo: { UUID, Hostname } });
  }
  const [first = '', second = ''] = uuids.values();

  await t.test('servers of a group are given by hostname, by uuid or as JSON', async (t) => {
    for (const servers of ['web-1,web-2', `${first},web-2`, `["${first}","web-2"]`]) {
      const made = await cli.json<ServerGroup>('group', 'create', `name=web-${uuids.size}`, `servers=${servers}`);
      t.same(made.servers, [first, second], servers);
      t.match(await cli.run('group', 'delete', made.uuid), { code: 0, stdout: `deleted server group ${made.uuid}\n` });
    }
    t.match(await cli.run('group', 'create', 'name=x', 'servers=web-3'), {
      code: 2,
      stderr: /There is no server web-3/,
    });
  });

  await t.test('a group is found by its name, its uuid or the beginning of its uuid', async (t) => {
    const { uuid } = await cli.json<ServerGroup>('group', 'create', 'name=web', 'servers=web-1');
    for (const text of ['web', uuid, uuid.slice(0, 8)]) t.match(await cli.json('group', 'get', text), { uuid }, text);
    t.same((await cli.json<ServerGroup>('group', 'update', 'web', 'servers=web-2')).servers, [second]);
    t.match(await cli.run('group', 'get', 'wbe'), { code: 2, stderr: /There is no server group wbe/ });
    t.match(await cli.run('group', 'get', 'we*'), { code: 2, stderr: /There is no server group/ });
    t.match(await cli.run('group', 'delete', 'web'), { code: 0 });
    t.same(await cli.json('group', 'list'), []);
  });

  await t.test('a beginning that several uuids share is refused with these uuids', async (t) => {
    const twins = ['abcd0000-0000-4000-8000-000000000001', 'abcd0000-0000-4000-8000-000000000002'];
    for (const [at, uuid] of twins.entries())
      t.equal((await app.post('/server_groups', { uuid, name: `twin-${at}`, where: ['status=running'] })).status, 201);
    t.match(await cli.run('group', 'delete', 'abcd0000'), {
      code: 2,
      stderr: new RegExp(`several server groups abcd0000; give one of the uuids ${twins.join(', ')}`),
    });
    t.equal((await cli.json<ServerGroup[]>('group', 'list')).length, 2);
  });

  await t.test('a field that no group has is refused', async (t) => {
    t.match(await cli.run('group', 'create', 'web', 'where=["status=running"]'), {
      code: 2,
      stderr: 'web is not FIELD=VALUE with one of the fields name, servers, where, description: did you mean name=web?',
    });
    for (const field of ['colour', 'constructor', '__proto__'])
      t.match(await cli.run('group', 'create', 'name=x', `${field}=y`), {
        code: 2,
        stderr: `${field}=y is not FIELD=VALUE with one of the fields`,
      });
  });

  await t.test('an empty value that is not text is wrong usage, and so is a text for a list', async (t) => {
    for (const field of ['where', 'servers'])
      t.match(await cli.run('group', 'create', 'name=x', `${field}=`), {
        code: 2,
        stderr: `${field}= has no value: give one, or leave the field out`,
      });
    t.match(await cli.run('group', 'create', 'name=x', 'where=hostname=web-*'), {
      code: 2,
      stderr: `server group where is a JSON array, such as '["one","two"]'; hostname=web-* is not`,
    });
  });

  await t.test('a name that exists is refused in words that name it', async (t) => {
    t.match(await cli.run('group', 'create', 'name=twin-0', 'servers=web-1'), {
      code: 1,
      stderr: /There is already a server group with the name "twin-0" \(/,
    });
  });
});
