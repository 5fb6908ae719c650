import { randomUUID } from 'node:crypto';
import t from 'tap';
import { STREAM_TASKS } from '../../../../lib/protocol/streams/stream.ts';
import { freshZone } from '../../../support/apps.ts';
import { until } from '../../../support/until.ts';
import { call } from '../../http/support.ts';
import { VmAgent } from '../../vms/vm-agent.ts';

t.test('work in a VM that has a stream', async (t) => {
  const zone = await freshZone(t);
  const { url, cnapiUuid, get } = await zone.startApp();
  const { agent, machine, received } = await VmAgent.start({ url, get });
  t.teardown(() => agent.close());
  const server = `/servers/${machine.serverUuid}`;
  const uuid = randomUUID();
  const vm = `${server}/vms/${uuid}`;
  const stream = `${cnapiUuid}.${randomUUID()}`;
  const paramsOf = async (id: string) => (await until(() => received.get(id), 'the agent receives the task')).params;

  await t.test('is a task with the VM and the place of the stream', async (t) => {
    const terminal = { columns: 80, rows: 24, type: 'xterm' };
    const { status, body } = await call(url, 'POST', `${vm}/exec`, {
      args: ['ls', ''],
      env: { A: 'b' },
      terminal,
      stream,
    });
    t.equal(status, 202);
    const place = { name: stream, host: '127.0.0.1', port: Number(new URL(url).port) };
    t.same(await paramsOf(body.id), { uuid, args: ['ls', ''], env: { A: 'b' }, terminal, stream: place });
    const logs = await call(url, 'POST', `${vm}/logs`, { follow: true, tail: 0, stream });
    t.same(await paramsOf(logs.body.id), { uuid, follow: true, tail: 0, stream: place });
    const resume = { position: { number: 2, offset: 7 }, stdout: 1, stderr: 0 };
    const continued = await call(url, 'POST', `${vm}/logs`, { follow: true, resume, stream });
    t.same(await paramsOf(continued.body.id), { uuid, follow: true, resume, stream: place });
    const attached = await call(url, 'POST', `${vm}/console`, { read_only: true, terminal, stream });
    t.same(await paramsOf(attached.body.id), { uuid, read_only: true, terminal, stream: place });
  });

  await t.test('the value of a secret variable is shown to the agent only', async (t) => {
    const request = { args: ['env'], env: { PASSWORD: 'hidden' }, secret_params: ['/env/PASSWORD'], stream };
    const { body } = await call(url, 'POST', `${vm}/exec`, request);
    t.match(await paramsOf(body.id), { env: { PASSWORD: 'hidden' } });
    t.match((await call(url, 'GET', `/tasks/${body.id}`)).body, { params: { env: { PASSWORD: '(secret)' } } });
  });

  await t.test('is refused without a program, with an invalid length, and with a stream of nobody', async (t) => {
    const refused = async (path: string, body: object) =>
      (await call(url, 'POST', `${vm}/${path}`, body)).body.errors[0];
    t.match(await refused('exec', { args: [], stream }), { field: 'args' });
    t.match(await refused('logs', { tail: -1, stream }), { field: 'tail' });
    const other = `${randomUUID()}.${randomUUID()}`;
    t.match(await refused('logs', { stream: other }), { field: 'stream', message: /not live/ });
  });

  await t.test('cannot be created as another task is: its caller would choose where the agent connects', async (t) => {
    for (const task of Object.keys(STREAM_TASKS)) {
      const { body } = await call(url, 'POST', `${server}/tasks`, { task, params: { uuid } });
      t.match(body.errors[0], { field: 'task', message: /has a route of its own/ }, task);
    }
  });
});
