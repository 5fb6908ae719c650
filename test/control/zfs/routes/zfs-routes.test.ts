/** Triton's routes for ZFS of a server, with a scripted agent. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { joinAgent, newMachine } from '../../../support/scripted-agent.ts';
import { until } from '../../../support/until.ts';
import { VmAgent } from '../../vms/vm-agent.ts';

async function start(t: Test) {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const last = () => [...agent.received.values()].at(-1);
  return { app, agent, last, at: `/servers/${agent.machine.serverUuid}` };
}

const ONE = { name: 'zones/a', type: 'filesystem', used: '1.5G', avail: '2G', refer: '24K', mountpoint: '/zones/a' };
const DATASET = '/datasets/zones%2Fa';

t.test('each change is a task with the parameters that agents of Triton know, and is in the audit', async (t) => {
  const { app, last, at } = await start(t);
  const rows: [string, string, object, string, object][] = [
    ['POST', '/datasets', { dataset: 'zones/a' }, 'zfs_create_dataset', { dataset: 'zones/a' }],
    ['POST', `${DATASET}/snapshot`, { name: 'one' }, 'zfs_snapshot_dataset', { dataset: 'zones/a@one' }],
    ['POST', `${DATASET}/rollback`, { name: 'one' }, 'zfs_rollback_dataset', { dataset: 'zones/a@one' }],
    [
      'POST',
      `${DATASET}/properties`,
      { properties: { quota: '5G', copies: 2 } },
      'zfs_set_properties',
      { dataset: 'zones/a', properties: { quota: '5G', copies: '2' } },
    ],
    ['DELETE', `${DATASET}%40one`, {}, 'zfs_destroy_dataset', { dataset: 'zones/a@one' }],
    ['DELETE', DATASET, {}, 'zfs_destroy_dataset', { dataset: 'zones/a' }],
  ];
  for (const [method, path, body, name, params] of rows) {
    const target = `${at}${path}`;
    t.equal(method === 'POST' ? (await app.post(target, body)).status : await app.delete(target), 204, path);
    t.match(last(), { name }, path);
    t.same(last()?.params, params, path);
  }
  const recorded = async () => (await app.get<object[]>('/audit?action=DestroyDataset')).body.length === 2;
  await until(recorded, 'the records of the audit');
});

t.test('questions have the answers of the agent, also of one of Triton', async (t) => {
  const { app, agent, last, at } = await start(t);
  const ask = async (path: string, result: object) => {
    agent.answer = () => ({ result: result as Record<string, unknown> });
    const { status, body } = await app.get(`${at}${path}`);
    t.equal(status, 200, path);
    return body;
  };
  t.same(await ask('/datasets', { datasets: [ONE] }), [ONE]);
  t.same(last()?.params, {});
  t.same(await ask('/datasets?dataset=zones/a', { datasets: [] }), []);
  t.same(last()?.params, { dataset: 'zones/a' });
  t.same(await ask(`${DATASET}/snapshots`, { snapshots: [ONE] }), [ONE]);
  t.match(last(), { name: 'zfs_list_snapshots', params: { dataset: 'zones/a' } });
  t.same(await ask('/zpools', { pools: [{ name: 'zones', size: '10G' }] }), [{ name: 'zones', size: '10G' }]);
  const properties = { 'zones/a': { quota: '0' } };
  t.same(await ask(`${DATASET}/properties?prop1=quota&property=used`, { ...properties, log: [] }), properties);
  t.same(last()?.params, { dataset: 'zones/a', properties: ['quota', 'used'] });
  t.same(await ask('/dataset-properties', properties), properties);
  t.same(last()?.params, {});
});

t.test('a wrong answer of the agent is an error that says what is wrong', async (t) => {
  const { app, agent, at } = await start(t);
  const rows: [string, object, RegExp][] = [
    ['/datasets', {}, /^cannot list datasets:the agent answered .* wrong result: it has no list of datasets$/],
    ['/datasets', { datasets: [ONE, 'zones/b'] }, /^cannot list datasets:.* wrong result: 1: /],
    [`${DATASET}/snapshots`, { datasets: [ONE] }, /wrong result: it has no list of snapshots$/],
    ['/zpools', { pools: [{ size: '10G' }] }, /^cannot list pools:.* wrong result: 0.name: /],
    ['/dataset-properties', { 'zones/a': { quota: 5 } }, /^cannot get properties:.* wrong result: zones\/a.quota: /],
  ];
  for (const [path, result, message] of rows) {
    agent.answer = () => ({ result: result as Record<string, unknown> });
    t.match(await app.get(`${at}${path}`), { status: 500, body: { code: 'InternalError', message } }, path);
  }
});

t.test('a failure has the text of Triton, and a refusal a code of its own', async (t) => {
  const { app, agent, at } = await start(t);
  const failing = (code: string, message: string) => {
    agent.answer = () => ({ error: { code, message } });
  };
  failing('ZfsFailed', 'no such pool');
  const rows: [string, string, string][] = [
    ['GET', '/datasets', 'cannot list datasets:no such pool'],
    ['GET', '/zpools', 'cannot list pools:no such pool'],
    ['GET', `${DATASET}/snapshots`, 'cannot list snapshots:no such pool'],
    ['GET', `${DATASET}/properties`, 'cannot get properties:no such pool'],
    ['POST', `${DATASET}/snapshot`, 'cannot create snapshot: no such pool'],
    ['POST', `${DATASET}/rollback`, 'cannot create snapshot: no such pool'],
  ];
  for (const [method, path, message] of rows) {
    const answer = method === 'GET' ? await app.get(`${at}${path}`) : await app.post(`${at}${path}`, { name: 'one' });
    t.match(answer, { status: 500, body: { code: 'InternalError', message } }, path);
  }
  failing('DatasetNotChangeable', 'zones stays');
  const refusal = { code: 'DatasetNotChangeable', message: 'zones stays' };
  t.match(await app.post(`${at}/datasets`, { dataset: 'zones/a' }), { status: 409, body: refusal });
});

t.test('a server without ZFS is 501, one that does not exist 404', async (t) => {
  const { app } = await start(t);
  const machine = newMachine();
  const { agent } = await joinAgent(app.url, machine, { capabilities: ['task:nop'] });
  t.teardown(() => agent.close());
  const isThere = async () => (await app.get(`/servers/${machine.serverUuid}`)).status === 200;
  await until(isThere, 'the server is there');
  const message = /has no ZFS/;
  const answer = { status: 501, body: { code: 'NotSupported', message } };
  t.match(await app.get(`/servers/${machine.serverUuid}/datasets`), answer);
  t.match(await app.post(`/servers/${machine.serverUuid}/datasets`, { dataset: 'zones/a' }), answer);
  t.match(await app.get(`/servers/${randomUUID()}/zpools`), { status: 404, body: { code: 'ResourceNotFound' } });
});

t.test('a name that is none of ZFS reaches no agent', async (t) => {
  const { app, agent, at } = await start(t);
  for (const name of ['-r', 'zones%2F..', 'zones%2Fa%40b%2Cc', 'zones%2F%25recv', 'zones%2F%2Fa'])
    t.match(
      await app.get(`${at}/datasets/${name}/properties`),
      { status: 409, body: { code: 'InvalidArgument' } },
      name,
    );
  for (const dataset of ['-r', 'zones/a@b', '', 5])
    t.match(await app.post(`${at}/datasets`, { dataset }), { status: 500, body: { code: 'InvalidParameters' } });
  for (const name of ['a@b', 'a,b', 'a%b', 'a/b'])
    t.match(await app.post(`${at}${DATASET}/snapshot`, { name }), { status: 500, body: { code: 'InvalidParameters' } });
  for (const prop of ['-p', 'quota,used', 'all x'])
    t.match(await app.get(`${at}${DATASET}/properties?prop1=${encodeURIComponent(prop)}`), {
      status: 400,
      body: { code: 'InvalidParameters' },
    });
  t.equal(agent.received.size, 0);
});
