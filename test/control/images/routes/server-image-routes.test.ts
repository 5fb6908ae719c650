/** Triton's routes for the images of a server, with a scripted agent. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { until } from '../../../support/until.ts';
import { VmAgent } from '../../vms/vm-agent.ts';

interface Created {
  id: string;
}

const IMAGE = randomUUID();

async function start(t: Test) {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  return { app, agent, at: `/servers/${agent.machine.serverUuid}` };
}

t.test('ensure-image is a task with the parameters of its request', async (t) => {
  const { app, agent, at } = await start(t);
  const params = { image_uuid: IMAGE, zfs_storage_pool_name: 'zones', imgapiPeers: [{ ip: '10.0.0.1', port: 80 }] };
  for (const given of [{ image_uuid: IMAGE }, params]) {
    const { status, body } = await app.post<Created>(`${at}/ensure-image`, given);
    t.equal(status, 200);
    t.same(Object.keys(body), ['id']);
    const task = await until(() => agent.received.get(body.id), 'the task');
    t.equal(task.name, 'image_ensure_present');
    t.same(task.params, given);
    t.match(await app.get(`/tasks/${body.id}/wait?timeout=60`), { status: 200, body: { status: 'complete' } });
  }
  // A record names its object when the request has ended.
  const recorded = async () => {
    const { body } = await app.get<{ object: string }[]>('/audit?action=EnsureServerImage');
    return body.filter(({ object }) => agent.received.has(object)).length === 2;
  };
  await until(recorded, 'both records of the audit');
});

t.test('the answer for an image is what the agent says', async (t) => {
  const { app, agent, at } = await start(t);
  agent.answer = ({ params }) => ({ result: { uuid: IMAGE, state: 'ready', asked: params } });
  const answer = await app.get<{ asked: object }>(`${at}/images/${IMAGE}?jobid=one&other=1`);
  t.match(answer, { status: 200, body: { uuid: IMAGE, state: 'ready' } });
  t.same(answer.body.asked, { uuid: IMAGE, jobid: 'one' });
  t.equal([...agent.received.values()][0]?.name, 'image_get');
  agent.answer = () => ({ error: { code: 'ImageNotFound', message: 'There is no such image' } });
  const refusal = { code: 'InternalError', message: 'There is no such image' };
  t.match(await app.get(`${at}/images/${IMAGE}`), { status: 500, body: refusal });
});

t.test('the list of images is what the agent says', async (t) => {
  const { app, agent, at } = await start(t);
  const listed = { uuid: IMAGE, state: 'ready', source: 'stream', size: 5, vms: 1 };
  const image = { ...listed, last_used_at: '2026-11-27T09:00:00.000Z' };
  agent.answer = () => ({ result: { images: [image] } });
  t.same(await app.get(`${at}/images`).then(({ status, body }) => ({ status, body })), { status: 200, body: [image] });
  t.equal([...agent.received.values()][0]?.name, 'image_list');
  agent.answer = () => ({ error: { code: 'NoContainers', message: 'This agent keeps no images' } });
  t.match(await app.get(`${at}/images`), { status: 500, body: { message: 'This agent keeps no images' } });
});

t.test('a wrong answer of the agent is an error that names the field', async (t) => {
  const { app, agent, at } = await start(t);
  const rows: [string, Record<string, unknown>, RegExp][] = [
    ['/images', {}, /^the agent answered image_list with a wrong result: images: /],
    ['/images', { images: [{ uuid: IMAGE }] }, /^the agent answered image_list with a wrong result: images.0.state: /],
    [`/images/${IMAGE}`, { uuid: 5 }, /^the agent answered image_get with a wrong result: uuid: /],
  ];
  for (const [path, result, message] of rows) {
    agent.answer = () => ({ result });
    t.match(await app.get(`${at}${path}`), { status: 500, body: { code: 'InternalError', message } });
  }
});

t.test('refusals are those of Triton', async (t) => {
  const { app, agent, at } = await start(t);
  const gone = `/servers/${randomUUID()}`;
  const notFound = { code: 'ResourceNotFound' };
  t.match(await app.post(`${gone}/ensure-image`, { image_uuid: IMAGE }), { status: 404, body: notFound });
  t.match(await app.get(`${gone}/images/${IMAGE}`), { status: 404, body: notFound });
  const wrong = await app.post<{ errors: object[] }>(`${at}/ensure-image`, {
    zfs_storage_pool_name: 5,
    imgapiPeers: {},
  });
  t.match(wrong, { status: 500, body: { code: 'InvalidParameters', message: 'Request parameters failed validation' } });
  const invalid = (field: string, message: string) => ({ field, code: 'Invalid', message });
  t.same(wrong.body.errors, [
    invalid('image_uuid', 'value was not a string'),
    invalid('zfs_storage_pool_name', 'value was not a string'),
    invalid('imgapiPeers', 'value was not an array'),
  ]);
  t.match(await app.post(`${at}/ensure-image`, { image_uuid: IMAGE, url: 'http://h/one' }), {
    status: 409,
    body: { code: 'InvalidArgument', message: 'url is not an explicitly defined parameter' },
  });
  t.equal(agent.received.size, 0, 'nothing was asked of the agent');
});
