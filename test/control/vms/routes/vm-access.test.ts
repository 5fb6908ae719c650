/** What the roles see of VMs, with tokens required, and which questions they may ask. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { Tokens } from '../../../../lib/control/access/tokens.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import type { Role } from '../../../../lib/protocol/api/contract/roles.ts';
import { freshZone } from '../../../support/apps.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { until } from '../../../support/until.ts';
import { type Answer, call } from '../../http/support.ts';
import { VmAgent } from '../vm-agent.ts';

const SECRET = 'tremendously-hushed';

t.test('VMs with tokens required', async (t) => {
  const zone = await freshZone(t);
  const { url } = await zone.startApp({ access: 'tokens', trustedNetworks: { '127.0.0.0/8': 'agent' } });
  const tokens = new Tokens({ database: zone.database, random: systemRandom });
  const headersOf = async (role: Role) => {
    const { token } = await tokens.create({ name: `the ${role}`, role, createdBy: 'the test' });
    return { authorization: `Bearer ${token}` };
  };
  const as = { reader: await headersOf('reader'), operator: await headersOf('operator') };
  const get = (role: 'reader' | 'operator', path: string): Promise<Answer> =>
    call(url, 'GET', path, undefined, as[role]);

  const agent = await VmAgent.start({ url, get: (path) => get('operator', path) });
  t.teardown(() => agent.agent.close());
  const server = agent.machine.serverUuid;
  const uuid = randomUUID();
  const at = `/servers/${server}/vms/${uuid}`;
  const vm = {
    uuid,
    alias: 'web',
    state: 'running',
    customer_metadata: { password: SECRET },
    internal_metadata: { 'docker:env': `["PASSWORD=${SECRET}"]` },
    tags: { group: SECRET },
    env: [SECRET],
    cmd: [SECRET],
    vnc: { password: SECRET },
    error: `The container could not be created: exec: "${SECRET}": executable file not found in $PATH`,
  };
  agent.answer = ({ name }) => ({ result: name === 'machine_load' ? vm : { environment: SECRET } });
  agent.report({ ...vm, a_field_of_next_year: SECRET });
  await until(async () => (await get('operator', `/vms/${uuid}`)).status === 200, 'the VM to be stored');

  await t.test('a reader sees that VMs exist and how they are', async (t) => {
    matchLists(t, (await get('reader', '/vms')).body, { vms: [{ uuid, server_uuid: server, state: 'running' }] });
    t.match(await get('reader', `/vms/${uuid}`), { status: 200, body: { uuid, alias: 'web', state: 'running' } });
    matchLists(t, (await get('reader', `/servers/${server}/vms`)).body, [{ uuid, state: 'running' }]);
    t.match(await get('reader', `/servers/${server}`), {
      status: 200,
      body: { vms: { [uuid]: { state: 'running' } } },
    });
  });

  await t.test('a reader gets a VM as it was reported, and its agent is not asked', async (t) => {
    const asked = agent.received.size;
    const shown = { uuid, server_uuid: server, alias: 'web', state: 'running' };
    t.match(await get('reader', at), { status: 200, body: { ...shown, withheld: true } });
    t.match(await get('reader', `${at}?include_dni=true`), { status: 200, body: shown });
    for (const other of [`/servers/${server}/vms/${randomUUID()}`, `/servers/${server}/vms/${randomUUID()}?jobid=x`])
      t.match(await get('reader', other), { status: 404, body: { code: 'ResourceNotFound' } });
    t.equal(agent.received.size, asked);
    const { rows } = await zone.database.query(`select id from cnapi_tasks where name = 'machine_load'`);
    t.same(rows, [], 'so a reader cannot fill the table of tasks');
    t.same((await get('operator', at)).body, vm);
  });

  await t.test('no answer to a reader contains metadata, tags, programs or unknown fields', async (t) => {
    for (const path of ['/vms', `/vms/${uuid}`, `/servers/${server}/vms`, `/servers/${server}`, at]) {
      const { status, text } = await get('reader', path);
      t.equal(status, 200, path);
      t.notMatch(text, SECRET, path);
    }
    t.notMatch((await get('reader', `/servers/${server}/task-history`)).text, SECRET, 'nor the task that asked');
  });

  await t.test('why a VM failed is only shown to those who may see the contents of tasks', async (t) => {
    const { error } = vm;
    t.match((await get('operator', `/vms/${uuid}`)).body, { error });
    matchLists(t, (await get('operator', '/vms')).body, { vms: [{ error }] });
    t.match((await get('reader', `/vms/${uuid}`)).body, { error: /shown to callers with the role operator/ });
  });

  await t.test('a reader may not look into a VM, and its agent is not asked', async (t) => {
    const asked = agent.received.size;
    for (const path of [`${at}/info`, `${at}/info?info=vnc`, `${at}/proc`, `${at}/vnc`])
      t.match(await get('reader', path), { status: 403, body: { code: 'Forbidden' } }, path);
    t.equal(agent.received.size, asked);
    t.match(await get('operator', `${at}/info`), { status: 200, body: { environment: SECRET } });
    t.match(await get('operator', `${at}/proc`), { status: 200, body: { environment: SECRET } });
  });

  await t.test('a reader changes no VM', async (t) => {
    const asked = agent.received.size;
    const changes = [
      ['POST', `/servers/${server}/vms`, { uuid: randomUUID(), image_uuid: randomUUID() }],
      ['POST', `${at}/stop`],
      ['POST', `${at}/docker-exec`, { command: {} }],
      ['POST', `${at}/docker-copy`, { path: '/' }],
      ['POST', `${at}/docker-stats`, {}],
      ['PUT', `${at}/snapshots`, { snapshot_name: 'one' }],
      ['DELETE', at],
    ] as const;
    for (const [method, path, body] of changes)
      t.match(await call(url, method, path, body, as.reader), { status: 403, body: { code: 'Forbidden' } }, path);
    t.equal(agent.received.size, asked);
    matchLists(t, (await get('operator', '/vms')).body, { vms: [{ uuid, state: 'running' }] });
  });

  await t.test('without a token nothing is shown', async (t) => {
    for (const path of ['/vms', `/vms/${uuid}`, `/servers/${server}/vms`, at]) {
      const { status, text } = await call(url, 'GET', path, undefined, { authorization: 'Bearer nonsense' });
      t.equal(status, 401, path);
      t.notMatch(text, uuid, path);
    }
  });
});
