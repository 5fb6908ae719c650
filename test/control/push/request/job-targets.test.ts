/** The servers of a new push job: by conditions on servers, and those of an earlier job. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { matches, parseWhereOption } from '../../../../lib/cli/lookup/where.ts';
import type { NamedServer } from '../../../../lib/protocol/api/servers.ts';
import { freshZone } from '../../../support/apps.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { startAgents } from '../../../support/simulated-agents.ts';
import { createdJob, endedJob, nodesOfJob } from '../jobs.ts';

t.test('a zone with servers of two racks', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agents = await startAgents(t, [app], 4);
  const uuids = agents.map(({ serverUuid }) => serverUuid).sort();
  const [first = '', ...others] = uuids;
  await app.post(`/servers/${first}`, { traits: { rack: 'r1', note: '50%_\\\nb' }, comments: 'first', reserved: true });
  for (const uuid of others) await app.post(`/servers/${uuid}`, { traits: { rack: 'r2' } });
  const down = randomUUID();
  await app.post(`/servers/${down}/sysinfo`, { sysinfo: { UUID: down, Hostname: 'down' } });
  await app.post(`/servers/${down}`, { transitional_status: 'rebooting', transitional: true });
  const all = [...uuids, down].sort();
  const errorsOf = async (body: Record<string, unknown>) => {
    const answer = await app.post<{ errors: { field: string; message: string }[] }>('/push-jobs', {
      command: 'true',
      ...body,
    });
    t.equal(answer.status, 400, JSON.stringify(body));
    return answer.body.errors.map(({ field, message }) => `${field}: ${message}`);
  };
  const refused = async (body: Record<string, unknown>, field: string, says: RegExp) => {
    const answer = await app.post<{ errors: { field: string; message: string }[] }>('/push-jobs', {
      command: 'true',
      ...body,
    });
    t.equal(answer.status, 400, JSON.stringify(body));
    t.match(answer.body.errors[0], { field, message: says });
  };

  await t.test('conditions select what the command line selects by them', async (t) => {
    const { body: servers } = await app.get<NamedServer[]>('/servers');
    const conditions = [
      ['hostname=*'],
      ['hostname!=down'],
      ['traits.rack=r1'],
      ['traits.rack!=r1'],
      ['traits.rack=r*', 'status=running'],
      ['traits.note=50%_\\*'],
      ['traits.note=50_*'],
      ['traits.note=*\nb'],
      ['status!=running'],
      ['status=unknown'],
      ['reserved=true'],
      ['comments='],
      ['setup=*e', 'headnode!=true'],
      [`uuid=${first}`],
      [`uuid=${first.slice(0, 8)}*`, 'comments=f*r*t'],
    ];
    for (const where of conditions) {
      const wanted = servers.filter((server) => where.every((one) => matches(server, parseWhereOption(one))));
      if (wanted.length === 0) {
        await refused({ where }, 'where', /no server matches/);
        continue;
      }
      const { id } = await createdJob(app, { command: 'true', where, quorum: 1 });
      const nodes = await nodesOfJob(app, id);
      t.same(
        nodes.map(({ server_uuid: uuid, name: hostname }) => ({ uuid, hostname })),
        wanted.map(({ uuid, hostname }) => ({ uuid, hostname })),
        where.join(' '),
      );
      await endedJob(app, id);
    }
  });

  await t.test('a job keeps the servers that its conditions gave when it was created', async (t) => {
    const { id, quorum } = await createdJob(app, { command: 'true', where: ['traits.rack=r2'], quorum: '50%' });
    t.equal(quorum, 2, 'a share of those that match');
    await app.post(`/servers/${first}`, { traits: { rack: 'r2' } });
    t.equal((await endedJob(app, id)).node_count, 3);
    await app.post(`/servers/${first}`, { traits: { rack: 'r1' } });
  });

  await t.test('a job is for the servers of a named group, as they are when it is created', async (t) => {
    const listed = { name: 'listed', servers: uuids.slice(0, 2) };
    const racks = { name: 'racks', where: ['traits.rack=r2', 'status=running'] };
    for (const group of [listed, racks]) t.equal((await app.post('/server_groups', group)).status, 201);
    for (const [group, wanted] of [
      ['listed', uuids.slice(0, 2)],
      ['racks', others],
    ] as const) {
      const { id } = await createdJob(app, { command: 'true', group });
      t.same(
        (await nodesOfJob(app, id)).map(({ server_uuid }) => server_uuid),
        wanted,
        group,
      );
      await endedJob(app, id);
    }
    await refused({ group: 'nobody' }, 'group', /there is no server group "nobody"/);
    await refused({ group: 'racks', servers: uuids }, 'servers', /cannot be combined with group/);
    await app.post('/server_groups', { name: 'gone', servers: [randomUUID()] });
    await refused({ group: 'gone' }, 'group', /there are no such servers/);
    await app.post('/server_groups', { name: 'empty', servers: [] });
    await refused({ group: 'empty' }, 'group', /has no servers/);
    await app.post('/server_groups', { name: 'strange', where: ['hostnam=x'] });
    await refused({ group: 'strange' }, 'group', /no server has a property hostnam/);
  });

  await t.test('a group has either servers or conditions, and its name is taken once', async (t) => {
    for (const group of [{}, { servers: uuids, where: ['hostname=*'] }])
      t.match(await app.post('/server_groups', { name: 'odd', ...group }), { status: 409 });
    for (const where of [[], ['hostname']])
      t.ok((await app.post('/server_groups', { name: 'odd', where })).status >= 400);
    t.match(await app.post('/server_groups', { name: 'listed', where: ['hostname=*'] }), { status: 409 });
  });

  await t.test('a job is for the nodes of an earlier one, all or those with a status', async (t) => {
    const earlier = await createdJob(app, { command: 'true', servers: all, quorum: 1 });
    await endedJob(app, earlier.id);
    const { id } = await createdJob(app, { command: 'true', from_job: earlier.id, from_status: 'succeeded' });
    t.same(
      (await nodesOfJob(app, id)).map(({ server_uuid }) => server_uuid),
      uuids,
    );
    await endedJob(app, id);
    const again = await createdJob(app, { command: 'true', from_job: earlier.id, quorum: 1 });
    t.equal(again.node_count, 5);
    await endedJob(app, again.id);
    await refused({ from_job: earlier.id, from_status: 'crashed' }, 'from_status', /no node .* is crashed/);
    t.match(await app.post('/push-jobs', { command: 'true', from_job: randomUUID() }), { status: 404 });
  });

  await t.test('a request is refused with all that is wrong with it', async (t) => {
    const ticket = { scope: 'a', id: 'b', server_uuid: randomUUID() };
    const rows: [body: Record<string, unknown>, errors: (string | RegExp)[]][] = [
      [
        { servers: uuids, group: 'web', from_status: 'failed', quorum: 9, secret_env: ['A', 'B'], env: { B: '1' } },
        [
          'servers: value cannot be combined with group',
          'from_status: value needs from_job',
          'quorum: value is 9, and there are 4 servers; for a share of them write "9%"',
          'secret_env: env has no variable "A"',
        ],
      ],
      [
        { quorum: 'most', concurrency: 0, from_status: 'failed', secret_env: 'A', env: {} },
        [
          'quorum: value is neither a number of nodes nor a percentage such as "80%"',
          /^concurrency: /,
          /^secret_env: /,
          /^servers: value is missing/,
          'from_status: value needs from_job',
        ],
      ],
      [{ where: ['hostnam=x'], ticket }, ['where: no server has a property hostnam', /^ticket: there is no server/]],
      [{ where: ['hostname=*'], quorum: 6, ticket }, [/^quorum: value is 6, and there are 5/, /^ticket: there is no/]],
      [{ servers: 'web', quorum: 20_001 }, ['servers: value was not an array', /^quorum: .* at most 20000 servers/]],
    ];
    for (const [body, errors] of rows) matchLists(t, await errorsOf(body), errors, JSON.stringify(body));
  });

  await t.test('what is not a target is refused by the name of its field, and nothing is created', async (t) => {
    const count = async () => (await app.get<{ jobs: unknown[] }>('/push-jobs?limit=1000')).body.jobs.length;
    const before = await count();
    await refused({}, 'servers', /missing/);
    await refused({ where: [] }, 'where', /empty/);
    await refused({ where: ['hostname'] }, 'where', /NAME=PATTERN/);
    await refused({ where: [`hostname=${'x'.repeat(500)}`] }, 'where', /longer than 500/);
    await refused({ where: ['hostnam!=web'] }, 'where', /no server has a property hostnam/);
    await refused({ where: ['agents!=x'] }, 'where', /no server has a property agents/);
    for (const name of ['__proto__', 'constructor', 'toString', 'valueOf', 'hasOwnProperty', '__defineGetter__'])
      await refused({ where: [`${name}=x`] }, 'where', new RegExp(`no server has a property ${name}`));
    await refused({ where: ['status=rebooted'] }, 'where', /no server matches/);
    await refused({ where: ['hostname=*'], servers: uuids }, 'servers', /cannot be combined with where/);
    await refused({ from_status: 'failed', servers: uuids }, 'from_status', /from_job/);
    await refused({ where: ['hostname=*'], quorum: 6 }, 'quorum', /6, and there are 5 servers; .* write "6%"/);
    await refused({ servers: uuids, quorum: 101 }, 'quorum', /101, and there are 4 servers$/);
    t.equal(await count(), before);
  });
});
