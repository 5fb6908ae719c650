/** The workflow `server-reboot`, with real instances and a real agent. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import type { WorkflowJob } from '../../../lib/protocol/api/workflows.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { RebootingServer } from './rebooting-server.ts';
import { settingsServer } from './settings-server.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const waitFor = async (app: TestApp, uuid: string, query = 'timeout=60') =>
  (await app.get<WorkflowJob>(`/jobs/${uuid}/wait?${query}`)).body;

/** Resolves when the job is at this step. */
const atStep = (app: TestApp, uuid: string, step: string) =>
  until(async () => {
    const { body } = await app.get<WorkflowJob>(`/jobs/${uuid}`);
    return body.waiting_for?.step === step ? body : undefined;
  }, `job ${uuid} to be at ${step}`);

const names = (results: WorkflowJob['chain_results']) => results.map(({ name }) => name);

t.test('jobs that reboot a server', async (t) => {
  const zone = await freshZone(t);
  const [one, two] = [await zone.startApp(), await zone.startApp()];
  const server = await RebootingServer.start(t, [one, two]);
  const path = `/servers/${server.serverUuid}`;
  const reboot = async (body: object = {}) => {
    const answer = await one.post<{ job_uuid: string }>(`${path}/reboot`, body);
    t.equal(answer.status, 202);
    return answer.body.job_uuid;
  };

  await t.test('a job succeeds when the server is back with another boot time', async (t) => {
    const uuid = await reboot({ origin: 'test' });
    await atStep(two, uuid, 'await-boot');
    t.equal(server.reboots, 1);
    const again = await two.post<{ job_uuid: string }>(`${path}/reboot`, { origin: 'test' });
    t.strictSame(again.body, { job_uuid: uuid }, 'the same request gets the unfinished job');
    t.match(await two.post(`${path}/reboot`, { drain: true }), { status: 409, body: { code: 'ServerHasWorkflowJob' } });
    server.powerOff();
    await server.shown(({ status }) => status === 'rebooting');
    await server.boot();
    const job = await waitFor(two, uuid);
    t.match(job, { execution: 'succeeded', name: 'server-reboot', target: path, params: { origin: 'test' } });
    t.strictSame(names(job.chain_results), ['reboot', 'mark-rebooting', 'await-boot']);
    t.ok(job.chain_results.every(({ result, error }) => result === 'OK' && error === ''));
    t.equal(job.waiting_for, undefined);
    const shown = await server.shown(({ status }) => status === 'running');
    t.notOk('transitional_status' in shown, 'a server that is back is not shown as rebooting');
    t.equal(server.reboots, 1);
    t.match(await one.put(`/jobs/${uuid}/cancel`), { status: 409, body: { code: 'WorkflowJobEnded' } });
  });

  await t.test('a machine that is gone before it has said so counts as rebooted', async (t) => {
    server.diesAtReboot = true;
    const uuid = await reboot();
    await until(async () => server.reboots === 2 || undefined, 'the reboot');
    await server.boot();
    server.diesAtReboot = false;
    const job = await waitFor(one, uuid);
    t.equal(job.execution, 'succeeded');
    t.equal(server.reboots, 2, 'no step starts a second reboot');
    const [step] = job.chain_results;
    t.match(step, { name: 'reboot', result: 'AgentRestarted', error: '' }, 'the result says how its task ended');
  });

  await t.test('with drain, the agent takes no new task, and the reboot waits for those that run', async (t) => {
    const { body: running } = await one.post<{ id: string }>(`${path}/tasks`, {
      task: 'sleep',
      params: { timeout: 3_600_000 },
    });
    const uuid = await reboot({ drain: true });
    await atStep(one, uuid, 'await-idle');
    const { body: refused } = await one.post<{ id: string }>(`${path}/nop`);
    const ended = await one.get<Task>(`/tasks/${refused.id}/wait?timeout=60`);
    t.match(ended.body.history[0]?.event, { error: { code: 'AgentPaused' } });
    const pause = "select params from cnapi_tasks where name = 'agent_pause'";
    const asked = (await zone.database.query<{ params: object }>(pause)).rows;
    t.same(
      asked,
      [{ params: { drain: uuid, lease: 20 * 60_000 } }],
      'should it not be reached again, it resumes by itself',
    );
    t.equal((await atStep(two, uuid, 'await-idle')).execution, 'running');
    await one.post(`/tasks/${running.id}/cancel`);
    await atStep(one, uuid, 'await-boot');
    server.powerOff();
    await server.boot();
    const job = await waitFor(one, uuid);
    const rebooted = ['reboot', 'mark-rebooting', 'await-boot'];
    t.strictSame(names(job.chain_results), ['begin-drain', 'await-idle', ...rebooted, 'end-drain']);
    t.equal(job.execution, 'succeeded');
  });

  await t.test('a wait ends when a step begins', async (t) => {
    const { body: running } = await one.post<{ id: string }>(`${path}/tasks`, {
      task: 'sleep',
      params: { timeout: 3_600_000 },
    });
    const uuid = await reboot({ drain: true });
    const job = await waitFor(two, uuid, 'seen=1&begun=1');
    t.match(job.waiting_for, { step: 'await-idle', has_begun: true });
    await one.put(`/jobs/${uuid}/cancel`);
    t.equal((await waitFor(two, uuid)).execution, 'canceled');
    await one.post(`/tasks/${running.id}/cancel`);
  });

  await t.test('a server whose agent was resumed while it drained does not reboot', async (t) => {
    const { body: running } = await one.post<{ id: string }>(`${path}/tasks`, {
      task: 'sleep',
      params: { timeout: 3_600_000 },
    });
    const before = server.reboots;
    const uuid = await reboot({ drain: true });
    await atStep(one, uuid, 'await-idle');
    t.equal((await one.post(`${path}/cn-agent/resume`)).status, 204);
    await one.post(`/tasks/${running.id}/cancel`);
    const job = await waitFor(two, uuid);
    t.equal(job.execution, 'failed');
    t.match(job.chain_results.at(-1), { name: 'reboot', error_code: 'NotDrained', error: /not paused for it/ });
    t.equal(server.reboots, before);
  });

  await t.test('a job that is cancelled while it drains resumes the agent and reboots nothing', async (t) => {
    const { body: running } = await one.post<{ id: string }>(`${path}/tasks`, {
      task: 'sleep',
      params: { timeout: 3_600_000 },
    });
    const before = server.reboots;
    const uuid = await reboot({ drain: true });
    await atStep(one, uuid, 'await-idle');
    t.match(await two.post(`/jobs/${uuid}/cancel`), {
      status: 200,
      body: { cancel_requested: true, canceled_by: 'open' },
    });
    const job = await waitFor(two, uuid);
    t.equal(job.execution, 'canceled');
    t.match(job.chain_results[1], { name: 'await-idle', error: 'canceled', error_code: 'Canceled' });
    t.strictSame(names(job.onerror_results), ['end-drain']);
    const { body: nop } = await one.post<{ id: string }>(`${path}/nop`);
    t.match((await one.get(`/tasks/${nop.id}/wait?timeout=60`)).body, { status: 'complete' });
    t.equal(server.reboots, before);
    await one.post(`/tasks/${running.id}/cancel`);
  });

  await t.test('a job fails when the server is not back in time, and says what it looks like', async (t) => {
    const uuid = await reboot();
    await atStep(one, uuid, 'await-boot');
    await zone.database.query('update cnapi_workflow_jobs set step_tick = step_tick - 100000 where id = $1::uuid', [
      uuid,
    ]);
    const job = await waitFor(one, uuid);
    t.match(job, { execution: 'failed' });
    t.match(job.chain_results.at(-1), {
      error_code: 'StepTimeout',
      error: 'await-boot was not done within 3600 s: the server runs, and its boot time is the same',
    });
    server.powerOff();
    await server.shown(({ status }) => status !== 'running');
    await server.boot();
    await server.shown(({ status }) => status === 'running');
  });

  await t.test('without a job, the route answers when the task has ended', async (t) => {
    const before = server.reboots;
    t.equal((await one.post(`${path}/reboot`, { nojob: true })).status, 204);
    t.equal(server.reboots, before + 1);
  });

  await t.test('jobs are listed, the newest first', async (t) => {
    const { body: all } = await one.get<WorkflowJob[]>(`/jobs?server_uuid=${server.serverUuid}`);
    t.strictSame(
      all.map(({ execution }) => execution),
      ['failed', 'canceled', 'failed', 'canceled', 'succeeded', 'succeeded', 'succeeded'],
    );
    const { body: first } = await one.get<WorkflowJob[]>('/jobs?limit=2');
    const { body: rest } = await one.get<WorkflowJob[]>(`/jobs?after=${first[1]?.uuid}`);
    t.strictSame([...first, ...rest], all);
    t.strictSame((await one.get<WorkflowJob[]>('/jobs?execution=canceled')).body, [all[1], all[3]]);
    t.strictSame((await one.get('/jobs?name=server-setup')).body, []);
    t.strictSame((await one.get<WorkflowJob[]>('/jobs?offset=6')).body, [all[6]]);
    t.match(await one.get(`/jobs/${randomUUID()}`), { status: 404, body: { code: 'ResourceNotFound' } });
    t.equal((await one.get(`/jobs/${randomUUID()}/wait`)).status, 404);
    t.equal((await one.put(`/jobs/${randomUUID()}/cancel`)).status, 404);
  });
});

t.test('what a reboot is refused', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  t.equal((await app.post(`/servers/${randomUUID()}/reboot`)).status, 404);
  const server = await RebootingServer.start(t, [app], { allowReboot: false });
  const path = `/servers/${server.serverUuid}`;
  t.match(await app.post(`${path}/reboot`, { force: true }), { status: 409, body: { code: 'InvalidArgument' } });
  t.match(await app.post(`${path}/reboot`, { drain: 'yes' }), { status: 500, body: { code: 'InvalidParameters' } });
  const { body } = await app.post<{ job_uuid: string }>(`${path}/reboot`, { drain: true });
  const job = await waitFor(app, body.job_uuid);
  t.equal(job.execution, 'failed');
  t.match(job.chain_results.at(-1), { name: 'reboot', error_code: 'RebootNotAllowed' });
  t.strictSame(names(job.onerror_results), ['end-drain']);
  t.equal(server.reboots, 0);
  const telling = await settingsServer(t, [app], { allows: ['setup'] });
  const message = `The agent of server ${telling.serverUuid} was started without --allow-reboot`;
  for (const params of [{ drain: true }, { nojob: true }, {}])
    t.match(await app.post(`/servers/${telling.serverUuid}/reboot`, params), {
      ...{ status: 409, body: { code: 'RebootNotAllowed', message } },
    });
  t.same((await app.get(`/jobs?server_uuid=${telling.serverUuid}`)).body, [], 'the agent was not drained for it');
  await app.post(`${path}`, { agents: [{ name: 'cn-agent', version: '2.10.9' }] });
  t.match(await app.post(`${path}/reboot`, { nojob: true }), { status: 503, body: { code: 'ServiceUnavailable' } });
});

t.test('another instance continues the jobs of an instance that leaves', async (t) => {
  const zone = await freshZone(t);
  const apps = [await zone.startApp()];
  const server = await RebootingServer.start(t, apps);
  const { body } = (await apps[0]?.post<{ job_uuid: string }>(`/servers/${server.serverUuid}/reboot`)) ?? {};
  const uuid = body?.job_uuid ?? '';
  await atStep(apps[0] as TestApp, uuid, 'await-boot');
  server.powerOff();
  const two = await zone.startApp();
  apps.push(two);
  await apps.shift()?.stop();
  await server.boot();
  const job = await waitFor(two, uuid);
  t.equal(job.execution, 'succeeded');
  t.equal(server.reboots, 1);
});
