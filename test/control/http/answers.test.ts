/**
 * Each route of an instance with a real agent answers what its contract declares, and nothing else.
 * Tests of single routes check their answers in the same way (`call` in support.ts).
 */
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { ALLOWED_WORK } from '../../../lib/protocol/allowed-work.ts';
import { contractList } from '../../../lib/protocol/api/contracts.ts';
import { EVENT_KINDS } from '../../../lib/protocol/api/events.ts';
import type { Server } from '../../../lib/protocol/api/servers.ts';
import { deriveRecoveryUuid, templateDigest } from '../../../lib/protocol/recovery.ts';
import { ownProgram, Program } from '../../../tools/processes/program.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { answered, mismatchOf } from '../../support/contracts.ts';
import { EventFollower } from '../../support/event-follower.ts';
import { until } from '../../support/until.ts';
import { VmAgent } from '../vms/vm-agent.ts';
import { call } from './support.ts';

const SERVER = randomUUID();
const LEGACY = randomUUID();
const VM = randomUUID();
/**
 * Refused for the agents of this project, while a legacy agent may answer them; and docker-copy,
 * whose answer needs a program in the VM (docker-copy.test.ts checks it).
 */
const FOR_LEGACY_AGENTS = ['GetVmVnc', 'MigrateVm', 'DockerBuild', 'DockerCopy'];

t.test('every route answers as its contract declares', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  await zone.startApp();
  const { url, cnapiUuid } = app;
  const follower = await EventFollower.open(url);
  t.teardown(() => follower.close());
  await startAgent(t, app);
  const expect = async (status: number, method: string, target: string, body?: unknown) => {
    const answer = await call(url, method, target, body);
    t.equal(answer.status, status, `${method} ${target}: ${answer.text.slice(0, 200)}`);
    return answer.body;
  };
  const server = `/servers/${SERVER}`;

  for (const target of ['/ping', '/ready', '/info', '/diagnostics', '/loglevel', '/metrics', '/openapi.json'])
    await expect(200, 'GET', target);
  await expect(200, 'POST', '/loglevel', { level: 'fatal' });

  await expect(200, 'POST', `/servers/${LEGACY}/sysinfo`, { sysinfo: { UUID: LEGACY, Hostname: 'legacy' } });
  await expect(204, 'POST', `/servers/${LEGACY}/events/heartbeat`, {});
  const report = {
    vms: { [VM]: { uuid: VM, state: 'running' } },
    meminfo: { total_bytes: 1 },
    diskinfo: { pool_size_bytes: 1 },
  };
  await expect(204, 'POST', `/servers/${LEGACY}/events/status`, report);
  for (const target of ['/vms', `/vms/${VM}`, `/servers/${LEGACY}/vms`]) await expect(200, 'GET', target);
  await expect(200, 'GET', '/servers?extras=all');
  await expect(200, 'GET', '/servers?fields=hostname');
  await expect(204, 'POST', server, { comments: 'x', traits: { a: true }, transitional_status: 'rebooting' });
  await expect(204, 'POST', server, { transitional_status: '' });
  await expect(200, 'GET', server);
  await expect(200, 'GET', `/servers/${LEGACY}`);
  await expect(200, 'GET', '/servers/default');
  await expect(200, 'GET', `${server}/status-history`);
  await expect(201, 'POST', '/boot_platforms', { name: '20210101T000000Z' });
  await expect(200, 'GET', '/platforms?os=true');
  for (const at of ['/boot/default', `/boot/${SERVER}`]) {
    await expect(204, 'POST', at, { platform: '20210101T000000Z', kernel_args: { a: 'b' } });
    await expect(200, 'GET', at);
  }
  await expect(204, 'PUT', '/boot/default', {});
  await expect(200, 'PUT', `/boot/${SERVER}`, {});

  const { id } = await expect(202, 'POST', `${server}/tasks`, {
    task: 'command_execute',
    params: { script: 'echo x' },
  });
  await expect(200, 'GET', `/tasks/${id}/wait`);
  await expect(200, 'GET', `/tasks/${id}`);
  await expect(200, 'GET', `/tasks/${id}/events`);
  await expect(204, 'GET', `/tasks/${id}/events?after=1000`);
  const { id: failed } = await expect(200, 'POST', `${server}/nop`, { error: 'as asked' });
  await expect(200, 'GET', `/tasks/${failed}/wait`);
  await expect(200, 'GET', `/tasks/${failed}/events`);
  const { id: sleeper } = await expect(200, 'POST', `${server}/nop`, { sleep: 600 });
  await expect(202, 'POST', `/tasks/${sleeper}/cancel`);
  await expect(200, 'POST', `${server}/execute`, { script: 'echo x' });
  await expect(200, 'POST', `${server}/execute`, { script: 'exit 3', json: true });
  // Nobody has opened it: the task fails.
  await expect(202, 'POST', `${server}/exec`, { script: 'cat', stream: `${cnapiUuid}.${randomUUID()}` });
  await expect(202, 'POST', `${server}/connect`, { port: 80, stream: `${cnapiUuid}.${randomUUID()}` });
  await expect(200, 'POST', `${server}/sysinfo-refresh`, {});
  const recovery_uuid = deriveRecoveryUuid(templateDigest('x'));
  const recovery = { action: 'stage', recovery_uuid, pivtoken: 'x', template: 'x', token: 'x' };
  const { id: staging } = await expect(200, 'POST', `${server}/recovery-config`, recovery);
  await expect(200, 'GET', `/tasks/${staging}/wait`);
  await expect(412, 'POST', `${server}/recovery-config`, { ...recovery, action: 'no' });
  await expect(204, 'POST', `${server}/cn-agent/pause`, {});
  await expect(204, 'POST', `${server}/cn-agent/resume`, {});
  await expect(200, 'GET', `${server}/task-history`);
  await expect(200, 'GET', '/tasks');

  const vm = { vm_uuid: randomUUID(), owner_uuid: randomUUID(), ram: 1 };
  const allocation = { vm, image: {}, nic_tags: [], servers: [SERVER] };
  await expect(200, 'POST', '/allocate', { ...allocation, explain: true });
  await expect(200, 'POST', '/capacity', {});

  await vmAnswers(t, app, expect);

  await workflowAnswers(server, expect);

  const lock = { scope: 'vm', id: 'one', action: 'provision', extra: { by: 'test' }, expires_in: 600 };
  const { uuid: first } = await expect(202, 'POST', `${server}/tickets`, lock);
  const { uuid: second } = await expect(202, 'POST', `${server}/tickets`, lock);
  await expect(408, 'GET', `/tickets/${second}/wait?timeout=0`);
  await expect(200, 'GET', '/waitlist');
  await expect(200, 'GET', `/tickets/${first}`);
  await expect(204, 'GET', `/tickets/${first}/wait`);
  await expect(200, 'POST', `/tickets/${first}/renew`, { expires_in: 900 });
  await expect(204, 'PUT', `/tickets/${first}/release`, {});
  await expect(204, 'DELETE', `/tickets/${second}`);
  await expect(200, 'GET', `${server}/tickets`);
  await expect(204, 'DELETE', `${server}/tickets?force=true`);

  const { id: job } = await expect(201, 'POST', '/push-jobs', { command: 'sleep 60', servers: [SERVER], quorum: 1 });
  await expect(200, 'GET', '/push-jobs');
  await expect(200, 'POST', `/push-jobs/${job}`, { concurrency: 1 });
  await expect(201, 'POST', `/push-jobs/${job}/nodes`, { servers: [LEGACY] });
  await expect(202, 'PUT', `/push-jobs/${job}/abort`, {});
  await until(async () => (await expect(200, 'GET', `/push-jobs/${job}`)).status === 'aborted', 'the job to end');
  await expect(200, 'GET', `/push-jobs/${job}/nodes`);
  await expect(200, 'GET', `/push-jobs/${job}/events`);
  await expect(204, 'GET', `/push-jobs/${job}/events?after=end`);
  await expect(200, 'GET', `/push-nodes?server_uuid=${SERVER}`);
  await expect(204, 'DELETE', `/push-jobs/${job}`);

  const daily = { cron: '@daily', job: { command: 'sleep 60', servers: [SERVER] } };
  const { id: schedule } = await expect(201, 'POST', '/push-schedules', daily);
  await expect(200, 'GET', '/push-schedules');
  await expect(200, 'GET', '/push-schedules/times?cron=@daily');
  await expect(200, 'PUT', `/push-schedules/${schedule}/pause`, {});
  await expect(200, 'PUT', `/push-schedules/${schedule}/resume`, {});
  await expect(200, 'GET', `/push-schedules/${schedule}`);
  await expect(200, 'POST', `/push-schedules/${schedule}`, { overlap: 'queue' });
  const { id: run } = await expect(201, 'POST', `/push-schedules/${schedule}/run`, {});
  await expect(409, 'POST', `/push-schedules/${schedule}/run`, {});
  await expect(202, 'PUT', `/push-jobs/${run}/abort`, {});
  await expect(204, 'DELETE', `/push-schedules/${schedule}`);

  const { uuid: organization } = await expect(201, 'POST', '/organizations', { name: 'acme' });
  await expect(201, 'POST', '/bindings', { organization, server_uuid: SERVER });
  const { hostname } = await expect(200, 'GET', server);
  const pushy = '/organizations/acme/pushy';
  const feed = await EventFollower.openAt(`${url}${pushy}/job_status_feed`);
  t.teardown(() => feed.close());
  await expect(200, 'GET', '/pushy/_status');
  const ordered = { command: 'echo x', nodes: [hostname], capture_output: true };
  const { id: pushyJob } = await expect(201, 'POST', `${pushy}/jobs`, ordered);
  await expect(200, 'GET', `${pushy}/job_status_feed/${pushyJob}`);
  await expect(200, 'GET', `${pushy}/jobs`);
  t.match(await expect(200, 'GET', `${pushy}/jobs/${pushyJob}`), { status: 'complete' });
  for (const stream of ['stdout', 'stderr'])
    await expect(200, 'GET', `${pushy}/jobs/${pushyJob}/output/${hostname}/${stream}`);
  await expect(200, 'PUT', `${pushy}/jobs/${pushyJob}/abort`);
  await expect(200, 'DELETE', `${pushy}/jobs/${pushyJob}`);
  await expect(200, 'GET', `${pushy}/node_states`);
  await expect(200, 'GET', `${pushy}/node_states/${hostname}`);
  await expect(200, 'GET', `${pushy}/config/${hostname}?ccpk=${'x'.repeat(40)}`);
  await expect(200, 'GET', `${pushy}/connect/${hostname}`);
  const { id: place, kind, data } = await feed.next((event) => event.kind === 'job_complete', 'the end of the job');
  t.equal(mismatchOfEvent(place, kind, { name: 'FollowChefJobs', data }), undefined);

  await expect(201, 'POST', '/roles', { name: 'web', jig: 'script', script: 'exit 1' });
  const { uuid: deployment } = await expect(201, 'POST', '/deployments', { name: 'shop' });
  const bound = await expect(200, 'POST', `/deployments/${deployment}/noderoles`, { role: 'web', servers: [SERVER] });
  const noderole = `/noderoles/${bound.noderoles[0].uuid}`;
  await expect(200, 'POST', noderole, { data: { port: 80 } });
  await expect(200, 'POST', `/deployments/${deployment}/commit`);
  const hasFailed = async () => (await expect(200, 'GET', noderole)).state === 'error';
  await until(hasFailed, 'the noderole to fail');
  await expect(200, 'POST', `${noderole}/retry`);
  await expect(409, 'POST', `${noderole}/retry`);
  await until(hasFailed, 'the noderole to fail again');
  await expect(200, 'GET', '/noderoles');
  await expect(200, 'POST', `${noderole}/propose`);
  await expect(204, 'DELETE', noderole);

  const { uuid: token } = await expect(201, 'POST', '/tokens', { name: 'ci', role: 'reader' });
  await expect(200, 'GET', '/tokens');
  await expect(204, 'DELETE', `/tokens/${token}`);
  await expect(200, 'GET', '/audit?limit=1000');

  await expect(200, 'DELETE', `/servers/${LEGACY}`);
  await expect(200, 'GET', '/instances');
  await expect(202, 'POST', `/instances/${cnapiUuid}/drain`, {});

  for (const kind of EVENT_KINDS) {
    const { id, data } = await follower.next((event) => event.kind === kind, `an event of kind ${kind}`);
    t.equal(mismatchOfEvent(id, kind, { data }), undefined);
  }
  const names = contractList.map(({ name }) => name);
  t.same(
    names.filter((name) => !answered.has(name) && !FOR_LEGACY_AGENTS.includes(name)),
    [],
    'every route has answered',
  );
});

type Expect = (status: number, method: string, target: string, body?: unknown) => Promise<unknown>;

/** The agent may not reboot its machine, so a job that is not cancelled while a task runs fails. */
async function workflowAnswers(server: string, expect: Expect): Promise<void> {
  await expect(409, 'POST', `${server}/reboot`, {});
  // As an agent that does not say what it allows: it refuses when the work begins.
  const sayNothing = async () => {
    const { sysinfo } = (await expect(200, 'GET', server)) as Server;
    await expect(200, 'POST', `${server}/sysinfo`, { sysinfo: { ...sysinfo, [ALLOWED_WORK]: undefined } });
  };
  await sayNothing();
  const { id: task } = (await expect(200, 'POST', `${server}/nop`, { sleep: 600 })) as { id: string };
  for (const method of ['PUT', 'POST']) {
    const { job_uuid: job } = (await expect(202, 'POST', `${server}/reboot`, { drain: true })) as { job_uuid: string };
    await expect(200, method, `/jobs/${job}/cancel`, {});
    await expect(200, 'GET', `/jobs/${job}/wait?timeout=60`);
    await expect(409, method, `/jobs/${job}/cancel`, {});
    await expect(200, 'GET', `/jobs/${job}`);
  }
  await expect(202, 'POST', `/tasks/${task}/cancel`);
  await expect(200, 'GET', '/jobs');
  await expect(500, 'POST', `${server}/reboot`, { nojob: true });
  await expect(204, 'PUT', `${server}/setup`, {});
  await expect(204, 'POST', server, { setup: false });
  for (const job of ['setup', 'factory-reset']) {
    const { job_uuid: uuid } = (await expect(202, 'PUT', `${server}/${job}`)) as { job_uuid: string };
    await expect(200, 'GET', `/jobs/${uuid}/wait?timeout=60`);
    await sayNothing();
  }
  const nics = [{ mac: '02:99:00:00:00:01', nic_tags_provided: ['external'] }];
  await expect(202, 'PUT', `${server}/nics`, { action: 'update', nics });
  await expect(200, 'POST', `${server}/nics/update`, { nics });
}

async function vmAnswers(t: Test, app: TestApp, expect: Expect): Promise<void> {
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const vms = `/servers/${agent.machine.serverUuid}/vms`;
  const lists = { datasets: [], snapshots: [], pools: [] };
  agent.answer = ({ name }) => ({ result: name.startsWith('zfs_list_') ? lists : {} });
  await zfsAnswers(`/servers/${agent.machine.serverUuid}`, expect);
  const vm = randomUUID();
  const at = `${vms}/${vm}`;
  const image = { image_uuid: randomUUID() };
  const network = { uuid: randomUUID() };
  await expect(200, 'POST', `/servers/${agent.machine.serverUuid}/ensure-image`, image);
  await expect(200, 'GET', `/servers/${agent.machine.serverUuid}/images/${image.image_uuid}`);
  // Its agent has no containers, because whoever runs this test may lack the rights for them.
  const { sysinfo } = (await expect(200, 'GET', `/servers/${SERVER}`)) as { sysinfo: object };
  await expect(200, 'POST', `/servers/${SERVER}/sysinfo`, { sysinfo: { ...sysinfo, Containers: 'as told' } });
  await expect(202, 'POST', '/vms', { uuid: randomUUID(), ...image, server_uuid: SERVER, traits: { a: true } });
  agent.answer = () => ({ result: { images: [] } });
  await expect(200, 'GET', `/servers/${agent.machine.serverUuid}/images`);
  agent.answer = () => ({ result: {} });
  await expect(200, 'POST', `/servers/${agent.machine.serverUuid}/install-agent`, { package_file: '/a.tar' });
  await expect(200, 'POST', `/servers/${agent.machine.serverUuid}/uninstall-agents`, { agents: ['config-agent'] });
  await expect(200, 'POST', vms, { uuid: randomUUID(), ...image });
  for (const target of ['', '/info', '/proc']) await expect(200, 'GET', `${at}${target}`);
  await expect(501, 'GET', `${at}/vnc`);
  for (const action of ['update', 'start', 'stop', 'reboot', 'kill']) await expect(200, 'POST', `${at}/${action}`, {});
  await expect(200, 'POST', `${at}/reprovision`, image);
  await expect(200, 'POST', `${vms}/nics/update`, { original_network: network, networks: [network] });
  await expect(501, 'POST', `${at}/migrate`, { migrationTask: { action: 'sync', record: {} } });
  await expect(200, 'PUT', `${at}/snapshots`, { snapshot_name: 'one' });
  await expect(200, 'PUT', `${at}/snapshots/one/rollback`, {});
  await expect(200, 'DELETE', `${at}/snapshots/one`);
  await expect(200, 'POST', `${at}/images`, {
    compression: 'gzip',
    imgapi_url: 'http://images',
    manifest: { uuid: VM },
  });
  const stream = `${app.cnapiUuid}.${randomUUID()}`;
  await expect(202, 'POST', `${at}/exec`, { args: ['cat'], stream });
  await expect(202, 'POST', `${at}/logs`, { follow: true, tail: 10, stream });
  await expect(202, 'POST', `${at}/console`, { read_only: true, stream });
  await expect(202, 'POST', `${at}/connect`, { port: 80, stream });
  agent.answer = ({ name }) => ({ result: name === 'machine_load' ? { uuid: vm, state: 'running' } : {} });
  await expect(200, 'POST', `${at}/docker-exec`, { command: { Cmd: ['true'] } });
  await expect(200, 'POST', `${at}/docker-stats`, {});
  await expect(400, 'POST', `${at}/docker-copy`, { path: '/' });
  await expect(501, 'POST', `${at}/docker-build`, {});
  await expect(200, 'DELETE', at);
}

async function zfsAnswers(at: string, expect: Expect): Promise<void> {
  for (const path of ['/datasets', '/zpools', '/dataset-properties']) await expect(200, 'GET', `${at}${path}`);
  const dataset = `${at}/datasets/${encodeURIComponent('zones/data')}`;
  for (const path of ['/snapshots', '/properties?prop1=quota']) await expect(200, 'GET', `${dataset}${path}`);
  await expect(204, 'POST', `${at}/datasets`, { dataset: 'zones/data' });
  for (const path of ['/snapshot', '/rollback']) await expect(204, 'POST', `${dataset}${path}`, { name: 'one' });
  await expect(204, 'POST', `${dataset}/properties`, { properties: { quota: '1G' } });
  await expect(204, 'DELETE', dataset);
}

t.test('an answer is refused that has another type, an undeclared field, or an undeclared code', (t) => {
  const info = contractList.find(({ name }) => name === 'GetInfo');
  const mismatch = (status: number, body: object) =>
    info && mismatchOf(info, { status, contentType: 'application/json', text: JSON.stringify(body) });
  t.equal(mismatch(200, { version: '1' }), undefined);
  t.match(mismatch(200, { version: 1 }), /GetInfo 200/);
  t.match(mismatch(200, { version: '1', more: 1 }), /more/);
  t.match(mismatch(201, {}), /not declared/);
  t.equal(mismatch(401, { code: 'Unauthorized', message: 'x' }), undefined);
  t.match(mismatch(401, { code: 'Forbidden', message: 'x' }), /code/);
  t.match(mismatch(500, { code: 'NoSuchCode', message: 'x' }), /code/);
  t.match(mismatchOfEvent('1', 'ticket', { data: { uuid: SERVER } }), /FollowEvents/);
  t.end();
});

function mismatchOfEvent(
  id: string,
  kind: string,
  { name: route = 'FollowEvents', data }: { name?: string; data: unknown },
): string | undefined {
  const contract = contractList.find(({ name }) => name === route);
  const text = `id: ${id}\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`;
  return contract && mismatchOf(contract, { status: 200, contentType: 'text/event-stream', text });
}

async function startAgent(t: Test, { url, get }: TestApp): Promise<void> {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-answers-'));
  const args = ['--url', url, '--data', path.join(folder, 'data'), '--uuid', SERVER, '--encrypted-zpool'];
  const command = ownProgram('lib/agent/main.ts', args);
  const agent = new Program({ name: 'agent', command, logFile: path.join(folder, 'agent.log') });
  t.teardown(async () => {
    await agent.kill();
    rmSync(folder, { recursive: true, force: true });
  });
  agent.start();
  const isRunning = async () => (await get<{ status?: string }>(`/servers/${SERVER}`)).body.status === 'running';
  await until(isRunning, 'its agent to have a session');
}
